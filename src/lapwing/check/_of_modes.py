"""The checks of modes, applied to a task: its loss, its evaluation and its prediction as programs."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp

from lapwing.task import Arrays, Batches, Stream, source_of

from ._evaluated import check_finite
from ._jaxprs import place
from ._keys import DRAWS
from ._metrics import check_metrics
from ._modes import check_dropout, check_statistics
from ._program import Program, among, read
from ._report import CheckInputError, Report, fail
from ._running import check_running
from ._seen import check_seen
from ._training import Training

_WARM = 6


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
        _check_alike(training, evaluation, given)
    if task.has_state and jax.tree.leaves(state):
        key = jax.random.key(0)
        trained = read(lambda p, b, s: task.loss(p, b, s, key)[::2], **given)
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
    more = (key,) if task.has_key else ()
    step = lambda state, batch: task.loss(training.params, batch, state, *more)[2]  # noqa: E731
    loss = lambda state, batch: task.loss(training.params, batch, state, *more)[0]  # noqa: E731
    batches = [training.batch(number) for number in range(_WARM)]
    check_running(step, training.state.model, batches, loss, task.batch_axis)


def _evaluation(training: Training, given: dict[str, Any]) -> Program | None:
    """The program of the task's evaluation or prediction; None if it has none."""
    task = training.task
    if task.validation is not None:
        evaluate = task.evaluate or (lambda p, b, *s: training.one_loss(p, b))
        return read(evaluate, **{**given, "batch": _evaluated_batch(training)})
    if task.evaluate is not None:
        return read(task.evaluate, **{**given, "batch": _evaluated_batch(training)})
    return None if task.predict is None else read(task.predict, **given)


def _evaluated_batch(training: Training) -> Any:
    """What the evaluation is given: a batch of the validation set, a key, or for a prediction a batch."""
    if training.task.validation is not None:
        return held_out_batches(training, 1)[0]
    return training.batch() if training.task.evaluate is None else jax.random.key(0)


def _check_alike(training: Training, evaluation: Program, given: dict[str, Any]) -> None:
    """The evaluation is one of the parameters, and of inputs like those of training."""
    task, batch = training.task, training.batch()
    what = "the prediction" if task.validation is None and task.evaluate is None else "the evaluation"
    check_metrics(evaluation, what)
    check_metrics(read(training.loss_as_written, params=training.params, batch=batch), "training")
    program = read(training.one_loss, params=training.params, batch=batch)
    more = (training.state.model,) if "state" in given else ()
    others = (training.params, _evaluated_batch(training), *more)
    check_seen(program, (training.params, batch), evaluation, others, what)


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
