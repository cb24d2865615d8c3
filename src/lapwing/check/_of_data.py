"""The checks of data, labels and splits, applied to a task: its batches, its tables, and how its loss reads them."""

from typing import Any

import jax
import numpy as np

from lapwing.task import Arrays, Stream, source_of

from ._behind import check_behind, check_series_behind
from ._budget import Budget
from ._classes import check_classes, check_counted_from_one
from ._drawn import check_drawn_pairs, check_prepared, drawn_pairs
from ._evaluated import check_masked
from ._given import check_given, check_shown
from ._influence import is_drawable
from ._labels import TokenView, check_padding, check_shift, check_torn
from ._leakage import check_next_token, check_target_column, shared_examples
from ._of_modes import held_out_batches
from ._order import check_order
from ._padded import check_padded
from ._partition import by_path
from ._program import read
from ._relation import check_pairs, has_names, pairs_in
from ._report import CheckInputError, Report
from ._split import check_encoded, check_groups, check_scaled_apart
from ._training import Training

_BATCHES, _SECONDS = 48, 2.0
_POOLED = 16
_LABELLED = 6
_LARGEST = 2**25  # Bytes of a table that is read as a whole.


def of_labels(training: Training, **_: Any) -> Report:
    said = []
    if training.task.predict is not None:
        predict = jax.jit(training.predict)
        check_masked(predict, training.batch())
        said.append(check_padded(predict, training.batch()))
    said += [
        check_torn(_first_batches(training), _labels_of(training)),
        _check_order(training),
        _check_classes(training),
        _check_pairs(training),
    ]
    _check_series(training)
    others = "; ".join(filter(None, said))
    try:
        view = _view(training)
    except CheckInputError:
        if not others:
            raise
        return Report("labels", others)
    check_behind(view)
    message = check_shift(view)
    check_shown(view)
    program = read(training.one_loss, params=training.params, batch=training.batch())
    check_padding(view, program, training.params, training.batch())
    return Report("labels", message + (f"; {others}" if others else ""))


def _check_classes(training: Training) -> str:
    """The labels of some batches, as the loss reads them and as the task gives them."""
    task = training.task
    has_data = not training.config.overfit_batch and jax.tree.leaves(training.raw_batch(0))
    batches = [training.batch(number) for number in range(_LABELLED if has_data else 1)]
    if task.targets is not None and task.classes is not None:
        given = np.concatenate([np.ravel(task.targets(batch)) for batch in batches])
        check_counted_from_one(given, task.classes, "Task.targets")
    program = read(training.one_loss, params=training.params, batch=batches[0])
    return check_classes(program, training.params, batches)


def _check_pairs(training: Training) -> str:
    """Of a table whose targets are known: batches that are drawn may be random on purpose."""
    task = training.task
    if task.targets is None:
        return ""
    if task.prepare is not None:
        return _check_prepared(training)
    if not isinstance(task.source, Arrays | Stream):
        if (
            task.batch_axis != 0
            or training.config.overfit_batch
            or not jax.tree.leaves(training.raw_batch(0))
        ):
            return ""
        return check_drawn_pairs([training.raw_batch(number) for number in range(_POOLED)], task.targets)
    if isinstance(task.source, Stream):
        return ""
    held_out = None if task.validation is None else source_of(task.validation)
    pairs = [
        pairs_in(batches[0], task.targets) if (batches := _whole(source)) else None
        for source in (task.source, held_out)
    ]
    return "" if pairs[0] is None else check_pairs(pairs[0], pairs[1], has_names(_whole(task.source)[0]))


def _check_prepared(training: Training) -> str:
    """What `Task.prepare` makes of the batches must leave the relation of inputs and targets as it is."""
    task = training.task
    assert task.targets is not None
    if task.batch_axis != 0 or training.config.overfit_batch or not jax.tree.leaves(training.raw_batch(0)):
        return ""
    raw, prepared = (
        drawn_pairs([of(number) for number in range(_POOLED)], task.targets)
        for of in (training.raw_batch, training.batch)
    )
    return "" if raw is None or prepared is None else check_prepared(raw, prepared)


def _check_series(training: Training) -> None:
    """Of a loss of series, whose targets are an array of the batch."""
    task, batch = training.task, training.batch()
    if task.targets is None or task.time_axis is None or task.batch_axis != 0:
        return
    targets = np.asarray(task.targets(batch))
    arrays = {path: np.asarray(leaf) for path, leaf in by_path(batch, "batch").items() if is_drawable(leaf)}
    same = [
        path for path, leaf in arrays.items() if leaf.shape == targets.shape and np.array_equal(leaf, targets)
    ]
    if len(same) not in (1, 2):
        return
    loss = jax.jit(training.one_loss)

    def changed(path: str, times: slice) -> Any:
        other = targets.copy()
        other[:, times] = np.roll(targets[:, times], 1, axis=0)
        return jax.tree.unflatten(
            jax.tree.structure(batch),
            [other if at == path else leaf for at, leaf in by_path(batch, "batch").items()],
        )

    def counts(first: int, path: str = same[0]) -> bool:
        return bool(loss(training.params, changed(path, slice(first))) != loss(training.params, batch))

    if len(same) == 1:
        check_series_behind({path: leaf for path, leaf in arrays.items() if path != same[0]}, targets, counts)
    elif task.predict is not None and task.output_time_axis == task.time_axis == 1:
        predict = jax.jit(training.predict)
        before = np.asarray(predict(batch))

        def reacts(path: str, time: int) -> np.ndarray:
            """At which times the outputs change with an array at one time."""
            after = np.asarray(predict(changed(path, slice(time, time + 1))))
            return np.any(after != before, axis=tuple(each for each in range(before.ndim) if each != 1))

        check_given(same, targets, counts, reacts)


def _check_order(training: Training) -> str:
    """Of a loss that draws nothing, and that compares predictions with targets."""
    task = training.task
    if task.predict is None or task.targets is None or task.has_key or task.remember is not None:
        return ""
    loss = jax.jit(training.one_loss)
    try:
        return check_order(lambda batch: loss(training.params, batch), training.batch(), task.batch_axis)
    except CheckInputError:  # Not all of the batch has an axis of examples.
        return ""


def _view(training: Training) -> TokenView:
    batch = training.batch()
    return TokenView(read(training.one_loss, params=training.params, batch=batch), training.params, batch)


def _first_batches(training: Training) -> list[Any]:
    # Examples are compared along the first axis.
    if (
        training.config.overfit_batch
        or training.task.batch_axis != 0
        or not jax.tree.leaves(training.raw_batch(0))
    ):
        return []
    budget, found = Budget(_SECONDS), []
    while len(found) < _BATCHES and (budget.left() or len(found) < 2):
        found.append(training.raw_batch(len(found)))
    return found


def _whole(source: Any) -> list[Any]:
    """All rows of arrays as one batch; none where they are many."""
    if not isinstance(source, Arrays):
        return []
    leaves = jax.tree.leaves(source.arrays)
    return [source.arrays] if sum(np.asarray(leaf).nbytes for leaf in leaves) <= _LARGEST else []


def _labels_of(training: Training) -> Any:
    task = training.task
    return task.targets if task.targets is not None and task.prepare is None else None


def of_leakage(training: Training, **_: Any) -> Report:
    task, said = training.task, []
    if task.batch_axis == 0 and jax.tree.leaves(training.raw_batch(0)):
        check_target_column(training.raw_batch(0), _labels_of(training))
    if task.validation is not None:
        trained = _whole(task.source) or _first_batches(training)
        tested = _whole(source_of(task.validation)) or held_out_batches(training, 8)
        if trained and jax.tree.structure(trained[0]) == jax.tree.structure(tested[0]):
            said.append(shared_examples(trained, tested).message)
    _check_split(training)
    try:
        said.append(check_next_token(_view(training)).message)
    except CheckInputError:
        if not said:
            raise CheckInputError(
                "no validation data, and no tokens that are predicted from those before"
            ) from None
    return Report("leakage", "; ".join(said))


def _check_split(training: Training) -> None:
    """Of tables that are read as a whole: what the targets put into the inputs, how each part was scaled, and whether
    groups of rows were split."""
    task, targets = training.task, _labels_of(training)
    trained = _whole(task.source)
    held_out = [] if task.validation is None else _whole(source_of(task.validation))
    is_split = trained and held_out and jax.tree.structure(trained[0]) == jax.tree.structure(held_out[0])
    if is_split:
        check_scaled_apart(trained[0], held_out[0])
    if trained and targets is not None:
        check_encoded([*trained, *held_out], targets)
    if is_split and targets is not None:
        check_groups(trained[0], held_out[0], targets)
