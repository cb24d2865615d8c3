"""Running statistics that are those of the last batch, or of a part of each: an average that keeps less than half of
what it has, or does not change with all examples that the loss counts."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from lapwing.core import format_list

from ._influence import axes_of
from ._modes import is_named, statistics_in
from ._partition import by_path, is_float
from ._report import CheckInputError, fail

_KEPT = 0.5
_SHIFT = 0.5
_PARTS = 8


def check_running(
    step: Callable[[Any, Any], Any],
    state: PyTree,
    batches: Sequence[PyTree],
    loss: Callable[[Any, Any], Any] | None = None,
    batch_axis: Any = 0,
) -> str:
    """`step(state, batch)` is the next state, `loss(state, batch)` the loss. After some batches, all statistics are
    shifted by one number before the last of them: what is left of that afterwards is how much an average keeps.

    Counts that grow keep more with each batch, and what is not a moving average does not answer in this way.
    """
    leaves = by_path(state, "state")
    # Without names, what has one axis: a state of (examples, features) is that of a recurrence.
    paths = [path for path in statistics_in(state) if is_named(path) or np.ndim(leaves[path]) == 1]
    if not paths or len(batches) < 2:
        return ""

    def shifted(state: Any, by: float) -> Any:
        return jax.tree.map(lambda leaf: leaf + by if is_float(leaf) else leaf, state)

    run = jax.jit(step)
    for batch in batches[:-1]:
        state = run(state, batch)
    last, other = batches[-1], batches[0]
    plain, once, twice = (by_path(run(shifted(state, by), last), "state") for by in (0.0, _SHIFT, 2 * _SHIFT))
    elsewhere = by_path(run(state, other), "state")
    averages: list[str] = []
    found: dict[str, float] = {}
    for path in paths:
        here, up, further, there = (
            np.asarray(tree[path], np.float64) for tree in (plain, once, twice, elsewhere)
        )
        kept = (up - here) / _SHIFT
        is_average = np.allclose(further - up, up - here, atol=1e-4) and np.ptp(kept) < 1e-3
        is_average = is_average and not np.allclose(here, there, rtol=1e-6) and kept.mean() > 1e-3
        if is_average:
            averages.append(path)
        if is_average and kept.mean() < _KEPT:
            found[path] = float(kept.mean())
    if found:
        kept = max(found.values())
        fail(
            "modes",
            f"the running statistics {format_list(list(found), 4)} keep {kept:.0%} of what they were in each batch, so "
            f"that the last batch counts {1 - kept:.0%}: the evaluation depends on which batch was the last",
            "the momentum of the average: in Flax and Equinox it is the weight of the old statistics (0.9 or 0.99), in "
            "PyTorch that of the new ones (0.1)",
            list(found),
        )
    if averages and loss is not None:
        _check_whole(averages, run, jax.jit(loss), state, last, other, batch_axis)
    return f"{len(paths)} running statistics are averages of many batches"


def _check_whole(
    paths: Sequence[str], run: Any, loss: Any, state: PyTree, batch: PyTree, other: PyTree, batch_axis: Any
) -> None:
    """All examples that the loss counts have an effect on the statistics."""
    try:
        axes = axes_of(batch_axis, batch, "batch_axis")
    except CheckInputError:
        return  # Not all of the batch has an axis of examples.
    leaves, theirs = jax.tree.leaves(batch), jax.tree.leaves(other)
    counts = {np.shape(leaf)[axis] for leaf, axis in zip(leaves, axes, strict=True) if axis is not None}
    if len(counts) != 1 or (count := counts.pop()) < 2:
        return
    before, value = by_path(run(state, batch), "state"), loss(state, batch)
    parts = np.array_split(np.arange(count), min(count, _PARTS))
    idle, alive = [], []
    for part in parts:
        changed = [
            leaf if axis is None else _replaced(leaf, twin, part, axis)
            for leaf, twin, axis in zip(leaves, theirs, axes, strict=True)
        ]
        tree = jax.tree.unflatten(jax.tree.structure(batch), changed)
        after = by_path(run(state, tree), "state")
        same = all(np.array_equal(before[path], after[path]) for path in paths)
        (idle if same and loss(state, tree) != value else alive).append(part)
    if idle and alive and len(idle) >= len(parts) / 4:
        used = np.concatenate(alive)
        fail(
            "modes",
            f"the running statistics {format_list(list(paths), 4)} are those of a part of the batch (of {len(used)} of "
            f"{count} examples, from {used[0]} to {used[-1]}): the others have an effect on the loss and none on them",
            "the average over devices (jax.lax.pmean over their axis) before the statistics are kept, and an index "
            "that takes those of the first device or part",
            list(paths),
        )


def _replaced(leaf: Any, other: Any, part: np.ndarray, axis: int) -> Any:
    values = np.array(leaf)
    where = (slice(None),) * axis + (part,)
    values[where] = np.asarray(other)[where]
    return values
