"""The checks that read the programs of a task: of its loss, its evaluation and its initialization."""

import contextlib
import math
from typing import Any

import jax
import jax.numpy as jnp

from lapwing.task import Arrays, Stream

from ._accumulation import accumulation
from ._advances import check_advances, check_clip_acts_on_gradients
from ._attention import attention
from ._averages import check_averages
from ._bootstrap import check_bootstrap
from ._collapse import check_collapse
from ._constant_draws import check_constant_draws
from ._copies import check_copies
from ._cuts import cuts
from ._devices import devices
from ._forgets import check_forgets, check_lasts
from ._influence import axes_of
from ._integers import check_integers
from ._jaxprs import inputs_of_outputs
from ._kept import check_kept
from ._keys import keys
from ._memory import check_memory
from ._moments import check_moments
from ._numbers import numbers
from ._optimizer import optimizer, schedules_of, transformation_of
from ._program import read
from ._report import CheckInputError, Report
from ._rounded import check_resolution
from ._shared import check_shared
from ._sizes import doubled
from ._symmetry import symmetry
from ._targets import check_alive, target_networks
from ._training import Training
from ._units import check_units
from ._untrained import untrained

_MICRO_BATCHES = 4


def of_numbers(training: Training, **_: Any) -> Report:
    task = training.task
    axes = {"batch_axis": task.batch_axis, "time_axis": task.time_axis}
    if task.memory is None and not isinstance(task.source, Arrays | Stream):
        given: dict[str, Any] = {"key": jax.random.key(0), "step": jnp.zeros((), jnp.int32)}
        check_integers(read(task.source, **given), tuple(given.values()), "key")
    return numbers(training.one_loss, training.params, training.batch(), **axes)


def of_keys(training: Training, **_: Any) -> Report:
    """The keys of the initialization, of the data, of what prepares them, and of the loss."""
    task, key, reports = training.task, jax.random.key(0), []
    reports.append(keys(task.init, key, what="init"))
    if not isinstance(task.source, Arrays | Stream):
        memory = () if task.memory is None else (training.state.memory,)
        reports.append(keys(task.source, key, jnp.zeros((), jnp.int32), *memory, what="data"))
    batch = training.batch_shapes()
    if task.prepare is not None:
        raw = jax.eval_shape(lambda: training.raw_batch(0))
        reports.append(keys(task.prepare, training.params, raw, key, what="prepare"))
    state = (training.state.model,) if task.has_state else ()
    more = (key,) if task.has_key else ()
    reports.append(keys(task.loss, training.params, batch, *state, *more, what="the loss"))
    trees = {"params": training.params, "batch": batch}
    trees |= {"state": training.state.model} if task.has_state else {}
    trees |= {"key": key} if task.has_key else {}
    check_constant_draws(read(lambda *given: task.loss(*given)[0], **trees), "the loss")
    if task.has_key:
        _check_shared(training)
    draws = sum(report.facts["draws"] for report in reports)
    return Report("keys", f"{draws} draws, each with a key of its own", {"draws": draws})


def _check_shared(training: Training) -> None:
    """Dropout and noise of the loss are drawn for each example."""
    task, state = training.task, training.state.model
    given: dict[str, Any] = {"params": training.params, "batch": training.batch()}
    if task.has_state:
        given["state"] = state
    given["key"] = jax.random.key(0)

    pair = doubled(lambda *trees: task.loss(*trees)[0], task.batch_axis, **given)
    if pair is not None:
        check_shared(pair, tuple(given.values()))


def of_optimizer(training: Training, **_: Any) -> Report:
    task, config = training.task, training.config
    made: Any = task.optimizer
    if not hasattr(made, "update"):
        made = made(config.learning_rate)
    trained = jax.tree.map(
        lambda leaf, train: None if train is False else leaf, training.params, training.mask
    )
    schedules = [task.schedule] if task.schedule is not None else []
    report = optimizer(made, trained, schedules=schedules)
    check_moments(transformation_of(made), trained)
    check_memory(transformation_of(made), trained)
    course = check_forgets(transformation_of(made), trained)
    check_advances(transformation_of(made), trained, course.period)
    check_clip_acts_on_gradients(transformation_of(made), trained)
    check_resolution(training)
    for schedule in schedules:
        check_lasts(schedule, config.steps)
    for number, schedule in enumerate(schedules_of(made)):
        check_lasts(schedule, config.steps, course.updates(config.steps, number))
    if config.accumulate > 1 and not task.has_key and not task.has_state:
        whole = jax.jit(jax.grad(training.one_loss))
        cut = training.parts(training.batch())
        parts = [jax.tree.map(lambda leaf, n=n: leaf[n], cut) for n in range(config.accumulate)]
        accumulation(whole, training.params, training.batch(), parts)
    elif course.period > 1 and not task.has_key and not task.has_state and not config.overfit_batch:
        with contextlib.suppress(CheckInputError):  # Not all of the batch has an axis of examples.
            _check_micro_batches(training, min(course.period, _MICRO_BATCHES))
    return report


def _check_micro_batches(training: Training, count: int) -> None:
    """An optimizer that accumulates, such as optax.MultiSteps, adds the gradients of successive batches."""
    parts = [training.batch(number) for number in range(count)]
    axes = axes_of(training.task.batch_axis, parts[0], "batch_axis")
    columns = zip(*map(jax.tree.leaves, parts), strict=True)
    joined = [
        column[0] if axis is None else jnp.concatenate(column, axis)
        for column, axis in zip(columns, axes, strict=True)
    ]
    whole = jax.tree.unflatten(jax.tree.structure(parts[0]), joined)
    accumulation(jax.jit(jax.grad(training.one_loss)), training.params, whole, parts, in_proportion=True)


def of_targets(training: Training, budget_s: float = math.inf, **_: Any) -> Report:
    """Neither the target of a temporal difference nor the leaves called a target network have a gradient."""
    check_bootstrap(read(training.one_loss, params=training.params, batch=training.batch_shapes()))
    _check_averages(training)
    check_collapse(training, budget_s)
    found = target_networks(training.params)
    paths = training.trained_paths()
    alive = inputs_of_outputs(training.gradient, training.params, training.batch_shapes())
    check_alive(
        [path for path, yes in zip(paths, alive, strict=True) if yes and path in found],
        "what is called a target",
    )
    return Report("targets", f"no gradient reaches the target network ({len(found)} leaves)")


def _check_averages(training: Training) -> None:
    """What the state has as averages of the parameters follows these slowly, and does follow."""
    task, key, state = training.task, jax.random.key(0), training.state.model
    if task.has_state and jax.tree.leaves(state):
        batch = training.batch()
        step = lambda params, state: task.loss(params, batch, state, *((key,) if task.has_key else ()))[2]  # noqa: E731
        check_averages(step, training.params, state)


def of_untrained(training: Training, **_: Any) -> Report:
    task = training.task
    if task.predict is None:
        return untrained(training.one_loss, training.params, training.batch_shapes())
    state = (training.state.model,) if task.has_state else ()
    if task.has_state:
        check_kept(training)
    return untrained(task.predict, training.params, training.batch_shapes(), *state)


def of_devices(training: Training, **_: Any) -> Report:
    try:
        return devices(training.params)
    except CheckInputError:
        return check_copies(training)


def of_cuts(training: Training, **_: Any) -> Report:
    paths = training.trained_paths()
    return cuts(training.one_loss, training.params, training.batch_shapes(), trained=paths)


def of_attention(training: Training, **_: Any) -> Report:
    task = training.task
    if task.predict is None:
        return attention(training.one_loss, training.params, training.batch())
    state = (training.state.model,) if task.has_state else ()
    predict = task.predict
    return attention(lambda params, batch: predict(params, batch, *state), training.params, training.batch())


def of_symmetry(training: Training, **_: Any) -> Report:
    check_units(training.gradient, training.params, training.batch())
    return symmetry(training.gradient, training.params, training.batch())
