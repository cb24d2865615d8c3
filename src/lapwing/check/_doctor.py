"""All checks that apply to a task, one after the other, within a given time.

Each row of the table is a function of the patient: it returns the report of a check, raises what the check found, or
raises `DoesNotApply` with the reason.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.core import format_list

from ._budget import Budget, Tell
from ._causality import causality
from ._dead import dead_parameters
from ._fresh import fresh_data
from ._gradients import gradients
from ._independence import batch_independence
from ._jaxprs import inputs_of_outputs
from ._learn import can_learn
from ._parts import is_array, parts
from ._patient import Patient
from ._purity import purity, same_trace
from ._report import CheckError, CheckInputError, Report, found
from ._retrace import retrace
from ._same import same_numbers
from ._scale import scale
from ._structure import structure
from ._timing import honest_timing


class DoesNotApply(Exception):  # noqa: N818 - it is no error
    """Why a check says nothing about this task."""


@dataclass(frozen=True)
class Outcome:
    """What became of one check."""

    check: str
    result: Literal["passed", "failed", "meant", "does not apply", "left out"]
    detail: str
    seconds: float


def run_all(
    task: Any,
    key: jax.Array | None = None,
    *,
    only: Sequence[str] = (),
    budget_s: float = 120.0,
    tell: Tell | None = None,
) -> tuple[Outcome, ...]:
    """Every check that applies to a task of `lapwing.train`, or those named in `only`; nothing is raised.

    What no time is left for is left out. A check that has begun keeps to its share of the budget, but a compilation
    cannot be cut short.

    >>> from lapwing.task import Task
    >>> task = Task(
    ...     init=lambda key: {"w": jnp.zeros(3), "spare": jnp.zeros(2)},
    ...     data=lambda key, step: jax.random.normal(key, (8, 3)),
    ...     loss=lambda params, x: (jnp.mean((x @ (params["w"] - 1)) ** 2), {}),
    ... )
    >>> for outcome in run_all(task, only=("dead_parameters", "scale")):
    ...     print(outcome.check, outcome.result, outcome.detail[:50])
    dead_parameters failed params['spare'] (2 entries) has no effect on the l
    scale does not apply there is no jax.lax.scan in the loss
    """
    unknown = [name for name in only if name not in CHECKS]
    if unknown:
        raise CheckInputError(f"{unknown[0]!r} is not a check; there are {', '.join(CHECKS)}")
    patient = Patient(task, jax.random.key(0) if key is None else key)
    budget = Budget(budget_s)
    return tuple(_outcome(name, patient, budget, tell) for name in CHECKS if not only or name in only)


def quick(task: Any, key: jax.Array | None = None) -> tuple[Outcome, ...]:
    """The checks that only trace and compile next to nothing, for the start of a training; raises what they find.

    Trees that keep their leaves, a loss that is the same program when it is traced again, parameters that the gradient
    reaches, batches that differ.

    >>> from lapwing.task import Task
    >>> task = Task(
    ...     init=lambda key: jnp.zeros(3),
    ...     data=lambda key, step: jnp.ones((8, 3)),
    ...     loss=lambda w, x: (jnp.mean((x @ (w - 1)) ** 2), {}),
    ... )
    >>> quick(task)
    Traceback (most recent call last):
    lapwing.check._report.CheckError: batch 1 is the same as batch 0, and 1 of 4 batches are different. Look at ...
    """
    patient = Patient(task, jax.random.key(0) if key is None else key)
    outcomes = []
    for name, check in QUICK.items():
        started = time.perf_counter()
        try:
            result, detail = "passed", check(patient).said
        except DoesNotApply as reason:
            result, detail = "does not apply", str(reason)
        outcomes.append(Outcome(name, result, detail, time.perf_counter() - started))
    return tuple(outcomes)


def _outcome(name: str, patient: Patient, budget: Budget, tell: Tell | None) -> Outcome:
    left = budget.left()
    if left == 0:
        return Outcome(name, "left out", f"the budget of {budget.seconds:g} s is spent", 0.0)
    started = time.perf_counter()
    try:
        result, detail = "passed", CHECKS[name](patient, left, tell).said
    except CheckError as error:
        meant = patient.task.expected_findings.get(name)
        result, detail = ("failed", str(error)) if meant is None else ("meant", f"{meant}; {error}")
    except (DoesNotApply, CheckInputError) as reason:
        result, detail = "does not apply", str(reason)
    return Outcome(name, result, detail, time.perf_counter() - started)


def _structure(patient: Patient, left: float = 0.0, tell: Tell | None = None) -> Report:
    params, _ = patient.shapes
    optimizer = getattr(patient.task, "optimizer", None)
    if optimizer is None or not _all_floating(params):
        raise DoesNotApply("the task has no optimizer, or parameters that are not floating-point")
    state = jax.eval_shape(optimizer.init, params)
    # A gradient has the leaves of the parameters; jax sees to that.
    updated, optimizer_after = jax.eval_shape(patient.updated, (params, state), params)
    structure(params=params, updated=updated)
    structure(optimizer=state, updated_optimizer=optimizer_after)
    leaves = len(jax.tree.leaves(params))
    return Report(
        "structure", f"a step keeps the leaves of the parameters ({leaves}) and of the optimizer's state"
    )


def _all_floating(params: Any) -> bool:
    return all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(params))


def _gradients(patient: Patient, left: float, tell: Tell | None) -> Report:
    return gradients(
        patient.loss,
        patient.params,
        patient.batch(0),
        trainable=patient.trainable,
        # A task that is checked by name says on purpose what it says; the report names the place.
        stop_gradient="allowed",
        budget_s=left / 2,
        tell=tell,
    )


def _dead_parameters(patient: Patient, left: float, tell: Tell | None) -> Report:
    batches = [patient.batch(step) for step in range(3 if patient.has_data else 1)]
    # What a batch holds may be there for the memory of the task: which examples these are, and in which order.
    kept_for_memory = getattr(patient.task, "remember", None) is not None
    ignore = parts(batches[0], is_array, "batch").paths if kept_for_memory else ()
    return dead_parameters(patient.loss, patient.params, batches, trainable=patient.trainable, ignore=ignore)


def _batch_independence(patient: Patient, left: float, tell: Tell | None) -> Report:
    predict, axes = patient.task.predict, patient.task
    if predict is None:
        raise DoesNotApply("the task does not say what it predicts for each example (see Task.predict)")
    options: dict[str, Any] = {"batch_axis": (axes.batch_axis,), "budget_s": left / 4, "tell": tell}
    if patient.prepare is not None:
        batch_independence(patient.prepare, patient.drawn(0), out_axis=axes.batch_axis, **options)
    params = patient.params  # Made here: what is first made while a function is traced cannot leave it.
    return batch_independence(
        lambda batch: predict(params, batch), patient.batch(0), out_axis=axes.output_axis, **options
    )


def _causality(patient: Patient, left: float, tell: Tell | None) -> Report:
    predict, axes = patient.task.predict, patient.task
    if predict is None or axes.time_axis is None or axes.output_time_axis is None:
        raise DoesNotApply(
            "the task does not predict something at each moment of a sequence (see Task.predict)"
        )
    params = patient.params
    return causality(
        lambda batch: predict(params, batch),
        patient.batch(0),
        time_axis=(axes.time_axis,),
        out_axis=axes.output_time_axis,
        lag=axes.lag,
        budget_s=left / 2,
        tell=tell,
    )


def _fresh_data(patient: Patient, left: float = 0.0, tell: Tell | None = None, count: int = 16) -> Report:
    if not patient.has_data:
        raise DoesNotApply("the batches hold no arrays: the data stand in the task")
    return fresh_data(patient.drawn, count=count)


def _can_learn(patient: Patient, left: float, tell: Tell | None) -> Report:
    pick, batch = patient.task.targets, patient.batch(0)
    return can_learn(
        patient.loss,
        patient.params,
        batch,
        targets=None if pick is None else pick(batch),
        classes=patient.task.classes,
        trainable=patient.trainable,
        fall=0.1,
        budget_s=left / 2,
        tell=tell,
    )


def _same_numbers(patient: Patient, left: float, tell: Tell | None) -> Report:
    state = _start(patient)
    return same_numbers(
        patient.compiled_loss,
        lambda params, batch: patient.compiled_step((params, state[1]), batch)[1],
        patient.params,
        patient.batch(0),
        names=("the loss alone", "the loss in a step"),
    )


def _honest_timing(patient: Patient, left: float, tell: Tell | None) -> Report:
    return honest_timing(patient.compiled_loss, patient.params, patient.batch(0))


def _retrace(patient: Patient, left: float, tell: Tell | None) -> Report:
    state = _start(patient)
    return retrace(patient.compiled_step, [(state, patient.batch(step)) for step in range(3)], carry=True)


def _start(patient: Patient) -> Any:
    optimizer = getattr(patient.task, "optimizer", None)
    if optimizer is None or not _all_floating(patient.params):
        raise DoesNotApply("the task has no optimizer, or parameters that are not floating-point")
    return patient.params, optimizer.init(patient.params)


def _purity(patient: Patient, left: float, tell: Tell | None) -> Report:
    return purity(patient.compiled_loss, patient.params, patient.batch(0))


def _scale(patient: Patient, left: float, tell: Tell | None) -> Report:
    try:
        return scale(patient.loss, patient.params, patient.batch(0))
    except CheckInputError:
        raise DoesNotApply("there is no jax.lax.scan in the loss") from None


def _traced_twice(patient: Patient) -> Report:
    same_trace(patient.loss, *patient.shapes)
    return Report("purity", "traced twice, the loss is the same program")


def _reached(patient: Patient) -> Report:
    """Parameters whose gradient depends on nothing at all, as the trace of the gradient shows."""
    shapes, batch = patient.shapes
    if not _all_floating(shapes):
        raise DoesNotApply("there are parameters that are not floating-point")
    reached = inputs_of_outputs(jax.grad(patient.loss), shapes, batch)
    paths = [
        f"params{jax.tree_util.keystr(path)}" for path, _ in jax.tree_util.tree_flatten_with_path(shapes)[0]
    ]
    dead = [path for path, alive in zip(paths, reached, strict=True) if not alive]
    if dead and patient.trainable is not None:
        masks = dict(zip(paths, jax.tree.leaves(patient.trainable), strict=True))
        dead = [path for path in dead if np.any(masks[path])]
    if dead:
        found(
            "dead_parameters",
            f"the gradient of {format_list(dead)} is zero whatever the parameters and the batch are",
            "whether it is used in the loss at all, or stands behind a stop_gradient",
            dead,
        )
    return Report("dead_parameters", f"the gradient reaches every leaf ({len(paths)})")


# What takes longest to compile comes last, and is left out first.
CHECKS: dict[str, Callable[[Patient, float, Tell | None], Report]] = {
    "structure": _structure,
    "fresh_data": _fresh_data,
    "purity": _purity,
    "honest_timing": _honest_timing,
    "batch_independence": _batch_independence,
    "causality": _causality,
    "dead_parameters": _dead_parameters,
    "gradients": _gradients,
    "scale": _scale,
    "retrace": _retrace,
    "same_numbers": _same_numbers,
    "can_learn": _can_learn,
}

QUICK: dict[str, Callable[[Patient], Report]] = {
    "structure": _structure,
    "purity": _traced_twice,
    "dead_parameters": _reached,
    "fresh_data": lambda patient: _fresh_data(patient, count=4),
}
