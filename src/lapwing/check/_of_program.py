"""The checks that read the programs of a task: of its loss, its evaluation and its initialization."""

import contextlib
import itertools
from typing import Any

import jax
import jax.numpy as jnp

from lapwing.task import Arrays, Batches, Stream, source_of

from ._accumulation import accumulation
from ._advances import check_advances, check_clip_acts_on_gradients
from ._attention import attention
from ._copies import check_copies
from ._cuts import cuts
from ._devices import devices
from ._evaluated import check_finite
from ._forgets import check_forgets, check_lasts
from ._influence import axes_of
from ._jaxprs import inputs_of_outputs, place
from ._keys import DRAWS, keys
from ._modes import check_dropout, check_statistics
from ._numbers import numbers
from ._optimizer import optimizer, schedules_of, transformation_of
from ._program import among, read
from ._report import CheckInputError, Report, fail
from ._rounded import check_resolution
from ._running import check_running
from ._shared import check_shared
from ._sizes import doubled
from ._symmetry import symmetry
from ._targets import check_alive, target_networks
from ._training import Training
from ._untrained import untrained

_MICRO_BATCHES = 4
_WARM = 6


def of_numbers(training: Training, **_: Any) -> Report:
    task = training.task
    axes = {"batch_axis": task.batch_axis, "time_axis": task.time_axis}
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


def _check_used(training: Training) -> None:
    """A loss that takes a key must use it; one that also takes a state has to take both."""
    given = {"params": training.params, "batch": training.batch_shapes(), "key": jax.random.key(0)}
    program = read(lambda p, b, k: training.task.loss(p, b, k)[0], **given)
    if not any(among(out, program.dependent("key")) for out in program.closed.jaxpr.outvars):
        drawn = [eqn for eqn in program.eqns if eqn.primitive.name in DRAWS]
        if drawn:
            fail(
                "keys",
                f"the loss takes a key, and does not use it: what it draws at {place(drawn[0])} is the same random "
                "numbers in every step",
                "the key of that draw, which is a constant: give it the key of the loss",
                [place(drawn[0])],
            )
        fail(
            "modes",
            "the loss takes a key, and nothing in it depends on that: it draws nothing, or always the same",
            "whether dropout is on in training (a model in inference mode, a flag), and whether the key reaches it",
        )


def of_modes(training: Training, **_: Any) -> Report:
    task, state = training.task, training.state.model
    given: dict[str, Any] = {"params": training.params, "batch": training.batch_shapes()}
    if task.has_state:
        given["state"] = state
    if task.has_key and not task.has_state:
        _check_used(training)
    evaluation = _evaluation(training, given)
    if evaluation is not None:
        check_dropout(evaluation, "the evaluation")
        _check_evaluated(training)
    if task.has_state and jax.tree.leaves(state):
        key = jax.random.key(0)
        trained = read(lambda p, b, s: task.loss(p, b, s, key)[2], **given)
        check_statistics(trained, evaluation, state)
        _check_running(training)
    elif evaluation is None and not task.has_key:
        raise CheckInputError("the task has no evaluation, no prediction and no state")
    return Report(
        "modes", "dropout is off in evaluation" if evaluation else "training updates the statistics"
    )


def _check_running(training: Training) -> None:
    """The statistics of the state after some batches. A source that has no more batches than one is left alone."""
    task, key = training.task, jax.random.key(0)
    step = lambda state, batch: task.loss(training.params, batch, state, *((key,) if task.has_key else ()))[2]  # noqa: E731
    check_running(step, training.state.model, [training.batch(number) for number in range(_WARM)])


def _evaluation(training: Training, given: dict[str, Any]) -> Any:
    """The program of the task's evaluation or prediction; None if it has none."""
    task = training.task
    if task.validation is not None:
        batch = held_out_batches(training, 1)[0]
        evaluate = task.evaluate or (lambda p, b, *s: training.one_loss(p, b))
        return read(evaluate, **{**given, "batch": batch})
    if task.evaluate is not None:
        return read(task.evaluate, **{**given, "batch": jax.random.key(0)})
    return None if task.predict is None else read(task.predict, **given)


def _check_evaluated(training: Training) -> None:
    """The evaluation of the state before the first step, as `fit` would compute it."""
    task = training.task
    state = (training.state.model,) if task.has_state else ()
    if task.validation is not None and task.evaluate is not None:
        made = jax.jit(task.evaluate)(training.params, held_out_batches(training, 1)[0], *state)
        check_finite(made, "the evaluation")
    if task.predict is not None:
        check_finite(jax.jit(training.predict)(training.batch()), "the prediction")


def held_out_batches(training: Training, count: int) -> list[Any]:
    source = source_of(training.task.validation)
    if isinstance(source, Arrays):
        size = min(source.batch_size, source.rows)
        starts = range(0, max(1, min(source.rows, count * size) - size + 1), size)
        return [
            jax.tree.map(lambda leaf, at=at: jnp.asarray(leaf[at : at + size]), source.arrays)
            for at in starts
        ]
    assert isinstance(source, Stream)
    read_once = Batches(Stream(source.source, epochs=1), training.config.seed)
    return [jax.tree.map(jnp.asarray, batch) for batch in itertools.islice(read_once, count)]


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


def of_targets(training: Training, **_: Any) -> Report:
    """Of the leaves that are called a target network, none may be trained by the gradient."""
    found = target_networks(training.params)
    paths = training.trained_paths()
    alive = inputs_of_outputs(training.gradient, training.params, training.batch_shapes())
    check_alive(
        [path for path, yes in zip(paths, alive, strict=True) if yes and path in found],
        "what is called a target",
    )
    return Report("targets", f"no gradient reaches the target network ({len(found)} leaves)")


def of_untrained(training: Training, **_: Any) -> Report:
    task = training.task
    if task.predict is None:
        return untrained(training.one_loss, training.params, training.batch_shapes())
    state = (training.state.model,) if task.has_state else ()
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
    return symmetry(training.gradient, training.params, training.batch())
