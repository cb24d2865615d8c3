"""Each check, applied to the training step of a task.

A check is a function of a `Training` and of its limits, `budget_s` and `tell`. It returns a report, raises `CheckError`
if the check fails, and `CheckInputError` if it does not apply.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.core import format_list
from lapwing.jaxprs import readable
from lapwing.task import Arrays, Stream
from lapwing.train import key_at

from ._causality import causality
from ._dead import dead_parameters
from ._descent import check_climbs, descends
from ._drawn import check_rows
from ._flat import flatten
from ._fresh import fresh_data
from ._frozen import random_tables
from ._gradients import compare_gradients
from ._independence import batch_independence
from ._jaxprs import inputs_of_outputs
from ._learn import learn_one_batch, written_wrongly
from ._mixing import handed_on, mixture
from ._of_data import of_labels, of_leakage
from ._of_modes import of_modes
from ._of_program import (
    of_attention,
    of_cuts,
    of_devices,
    of_keys,
    of_numbers,
    of_optimizer,
    of_symmetry,
    of_targets,
    of_untrained,
)
from ._partition import is_array, partition
from ._program import Program, read
from ._purity import check_same_program, purity
from ._repeated import check_repeated
from ._report import CheckError, CheckInputError, Report, fail
from ._resumed import check_resumed
from ._retrace import retrace
from ._same import same_numbers
from ._scale import scale
from ._structure import structure
from ._thrown import check_thrown
from ._timing import honest_timing
from ._training import Training
from ._unread import check_unread
from ._updates import check_updates
from ._wrong_gradient import UNKNOWN

Check = Callable[..., Report]

_SPREAD = 32
_REPEATED = 3
_LOOKED_AHEAD = 16  # Before a training, a few batches must do.


def _structure(training: Training, **_: Any) -> Report:
    after, _metrics = training.traced[1]
    return structure(state=training.state, state_after_a_step=after)


def _fresh_data(training: Training, count: int = 16, **_: Any) -> Report:
    if training.config.overfit_batch:
        raise CheckInputError("overfit_batch trains on one batch")
    if not jax.tree.leaves(training.raw_batch(0)):
        raise CheckInputError("the batches contain no arrays: the data are part of the loss")
    # What a host feeds was read for the first steps only, and starts again after them.
    longest = 40 if isinstance(training.task.source, Arrays | Stream) else 200
    report = fresh_data(_drawn(training), count=count, later=longest if count >= _LOOKED_AHEAD else 0)
    if count >= _LOOKED_AHEAD:
        _check_rows(training)
        _check_repeated(training)
        with contextlib.suppress(CheckInputError):
            check_resumed(training.task.source, training.config.seed)
    return report


def _drawn(training: Training) -> Callable[[int], Any]:
    """The batches without the arrays that each of them has from the memory, such as states that are all zeros at
    first."""
    memory = jax.tree.leaves(training.state.memory)
    if not memory:
        return training.raw_batch

    def remembered(number: int) -> list[bool]:
        leaves = jax.tree.leaves(training.raw_batch(number))
        return [any(np.size(leaf) > 1 and np.array_equal(leaf, each) for each in memory) for leaf in leaves]

    always = [all(each) for each in zip(*map(remembered, range(_REPEATED)), strict=True)]
    if all(always):
        return training.raw_batch

    def drawn(number: int) -> Any:
        leaves, tree = jax.tree.flatten(training.raw_batch(number))
        return tree.unflatten(
            None if left_out else leaf for left_out, leaf in zip(always, leaves, strict=True)
        )

    return drawn


def _check_rows(training: Training) -> None:
    task, state = training.task, training.state
    if task.memory is None and not isinstance(task.source, Arrays | Stream):
        steps = np.linspace(0, max(training.config.steps - 1, 1), _SPREAD).astype(int).tolist()
        check_rows(task.source, [key_at(jnp.int32(step), state.keys.batch) for step in steps], steps)


def _check_repeated(training: Training) -> None:
    task = training.task
    if task.batch_axis == 0 and not task.has_key and task.prepare is None and task.remember is None:
        check_repeated([training.raw_batch(number) for number in range(_REPEATED)])


def _same_trace(training: Training, **_: Any) -> Report:
    # Another function object: jax keeps the trace of one that it has seen.
    again = readable(lambda *arguments: training.take_step(*arguments))(training.state, training.fed())
    check_same_program(training.traced[0], again)
    return Report("purity", "traced twice, the step is the same program")


def _batch_independence(training: Training, budget_s: float, **tell: Any) -> Report:
    task = training.task
    if task.predict is None:
        raise CheckInputError("the task does not define a prediction for each example (see Task.predict)")
    independence = functools.partial(
        batch_independence, batch_axis=(task.batch_axis,), budget_s=budget_s / 2, **tell
    )
    said = ""
    if task.prepare is not None:
        try:
            independence(training.prepare, training.raw_batch(0), out_axis=task.batch_axis)
        except CheckError:
            said = mixture(training.prepare, training.raw_batch(0), task.batch_axis)
            if not said:
                raise
    report = independence(training.predict, training.batch(), out_axis=task.output_axis)
    return Report(report.check, f"{report.message}; {said}", report.facts) if said else report


def _causality(training: Training, **limits: Any) -> Report:
    task = training.task
    if task.predict is None or task.time_axis is None or task.output_time_axis is None:
        raise CheckInputError("the task does not define a prediction for each time step (see Task.predict)")
    axes = (task.time_axis,)
    return causality(
        training.predict,
        training.batch(),
        time_axis=axes,
        out_axis=task.output_time_axis,
        lag=task.lag,
        **limits,
    )


def _dead_parameters(training: Training, **_: Any) -> Report:
    has_data = bool(jax.tree.leaves(training.raw_batch(0)))
    batches = [training.batch(number) for number in range(3 if has_data else 1)]
    # An array of the batch may be there for the task's memory alone: which examples these are, and in which order.
    everything = partition(batches[0], is_array, "batch").paths
    ignore = everything if training.task.remember else handed_on(training)
    report = dead_parameters(training.loss, training.params, batches, trainable=training.mask, ignore=ignore)
    if not training.task.remember and len(batches) > 1:
        check_unread(_readers(training, batches[0]), batches)
    _check_thrown(training, batches[0])
    without = [path for name in ("idle_leaves", "cancelling_leaves") for path in report.facts.get(name, ())]
    frozen = check_updates(training, without)
    if not frozen:
        return report
    message = (
        f"{report.message}; the optimizer freezes {format_list(frozen, 4)}: its updates are a constant zero"
    )
    if tables := random_tables(training, frozen):
        message += f", and {format_list(tables, 4)}, which the model looks up, has random rows: are they meant to stay?"
    return Report(report.check, message, {**report.facts, "frozen": frozen})


def _check_thrown(training: Training, batch: Any) -> None:
    """Nothing that the loss or the data compute may be thrown away."""
    closed: dict[str, Any] = {"opens": lambda eqn: False}
    check_thrown(read(training.loss_as_written, params=training.params, batch=batch, **closed), "the loss")
    task = training.task
    if task.memory is None and not isinstance(task.source, Arrays | Stream):
        given: dict[str, Any] = {"key": jax.random.key(0), "step": jnp.zeros((), jnp.int32)}
        check_thrown(read(task.source, **given, **closed), "data")


def _readers(training: Training, batch: Any) -> list[Program]:
    """The programs that may read a batch."""
    task = training.task
    found = [read(training.loss_as_written, params=training.params, batch=batch)]
    if task.predict is not None:
        found.append(read(lambda params, batch: training.predict(batch), params=training.params, batch=batch))
    if (targets := task.targets) is not None:
        found.append(read(lambda params, batch: targets(batch), params=training.params, batch=batch))
    return found


def _has_gradients(training: Training, **_: Any) -> Report:
    """No gradient may be independent of everything, as its trace shows."""
    paths = training.trained_paths()
    alive = inputs_of_outputs(training.gradient, training.params, training.batch_shapes())
    dead = [path for path, depends in zip(paths, alive, strict=True) if not depends]
    if dead:
        fail(
            "dead_parameters",
            f"the gradient of {format_list(dead)} is zero whatever the parameters and the batch are",
            "whether it is used in the loss at all, or only behind a stop_gradient",
            dead,
        )
    return Report("dead_parameters", f"every trained leaf ({len(paths)}) has a gradient")


def _gradients(training: Training, **limits: Any) -> Report:
    # A task that stops gradients does so on purpose: what it cuts is compared as cut.
    flat = flatten(
        training.loss, training.params, (training.batch(),), training.mask, plain=training.plain_loss
    )
    try:
        return compare_gradients(flat, **limits)
    except CheckError as error:
        cause = written_wrongly(training) if UNKNOWN in str(error) else None
        if cause is None:
            raise
        what = str(error).partition(". Look at ")[0]
        raise CheckError(
            "gradients", f"{what}; the program of the loss may show why: {cause}", error.where
        ) from None


def _same_numbers(training: Training, **_: Any) -> Report:
    def in_a_step(params: Any, batch: Any) -> Any:
        return training.step(training.state._replace(params=params))[1]["loss"]

    names = ("the loss alone", "the loss in a step")
    return same_numbers(jax.jit(training.loss), in_a_step, training.params, training.batch(), names=names)


def _can_learn(training: Training, **limits: Any) -> Report:
    check_climbs(training, descends(training).facts["climbs"])
    task, state = training.task, training.state
    rate = float(state.controls[state.rate_name])
    return learn_one_batch(
        training,
        rates=(rate, 10 * rate, 0.1 * rate),
        targets=None if task.targets is None else task.targets(training.batch()),
        classes=task.classes,
        fall=0.1,
        **limits,
    )


# What takes longest to compile comes last, and is skipped first.
CHECKS: dict[str, Check] = {
    "structure": _structure,
    "fresh_data": _fresh_data,
    "numbers": of_numbers,
    "keys": of_keys,
    "modes": of_modes,
    "optimizer": of_optimizer,
    "cuts": of_cuts,
    "attention": of_attention,
    "symmetry": of_symmetry,
    "targets": of_targets,
    "untrained": of_untrained,
    "labels": of_labels,
    "leakage": of_leakage,
    "devices": of_devices,
    "batch_independence": _batch_independence,
    "causality": _causality,
    "purity": lambda training, **_: purity(training.step, training.state),
    "honest_timing": lambda training, **_: honest_timing(training.step, training.state),
    "retrace": lambda training, **_: retrace(
        training.step, [(training.state,)] * 3, carry=True, weak_start=True
    ),
    "dead_parameters": _dead_parameters,
    "gradients": _gradients,
    "scale": lambda training, **_: scale(training.loss_as_written, training.params, training.batch()),
    "same_numbers": _same_numbers,
    "can_learn": _can_learn,
}

QUICK: dict[str, Check] = {
    "structure": _structure,
    "purity": _same_trace,
    "dead_parameters": _has_gradients,
    "fresh_data": functools.partial(_fresh_data, count=4),
    "can_learn": lambda training, **_: descends(training),
}
