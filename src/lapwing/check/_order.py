"""The order of the examples must not matter to a loss that compares predictions with targets.

Where it does, predictions and targets are put in different orders on the way to the loss: one of them is transposed,
rolled or sorted, and every example is compared with the target of another.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ._influence import axes_of, common_size, is_drawable
from ._report import fail

_MOST_TRIED = 64


def check_order(loss: Callable[[PyTree], Any], batch: PyTree, batch_axis: Any) -> str:
    """`loss(batch)` must be the same when the examples come in another order."""
    axes = axes_of(batch_axis, batch, "batch_axis")
    count = common_size(batch, axes, "batch_axis")
    if count < 3:
        return ""
    leaves, structure = jax.tree.flatten(batch)
    before = np.asarray(loss(batch), np.float64)
    random = np.random.default_rng(0)
    for order in (np.arange(count)[::-1], random.permutation(count)):
        moved = [
            leaf if axis is None or not is_drawable(leaf) else np.take(np.asarray(leaf), order, axis)
            for leaf, axis in zip(leaves, axes, strict=True)
        ]
        after = np.asarray(loss(jax.tree.unflatten(structure, moved)), np.float64)
        if np.isfinite(before) and abs(after - before) > 1e-4 * max(abs(before), 1e-3):
            _check_counted(loss, batch, axes, count, float(before))
            fail(
                "labels",
                f"the loss depends on the order of the examples: it is {before:.6g}, and {after:.6g} when the same "
                "examples come in another order, so predictions are compared with the targets of other examples",
                "the order of predictions and targets in the loss: a reshape or a transpose of one and not of the "
                "other, a roll, a sort, a shift along the axis of the examples",
            )
    return "the order of the examples does not matter"


def _check_counted(
    loss: Callable[[PyTree], Any], batch: PyTree, axes: list[int | None], count: int, before: float
) -> None:
    """Raises if the order matters because only some examples count: others in their place change nothing."""
    leaves, structure = jax.tree.flatten(batch)
    tried = np.unique(np.linspace(0, count - 1, min(count, _MOST_TRIED)).astype(int))
    counted = []
    for example in tried:
        order = np.arange(count)
        order[example] = (example + count // 2) % count
        moved = [
            leaf if axis is None or not is_drawable(leaf) else np.take(np.asarray(leaf), order, axis)
            for leaf, axis in zip(leaves, axes, strict=True)
        ]
        if float(loss(jax.tree.unflatten(structure, moved))) != before:
            counted.append(int(example))
    if 0 < len(counted) <= len(tried) / 2:
        fail(
            "labels",
            f"only {len(counted)} of the {len(tried)} examples that were tried (numbers {counted[0]} to {counted[-1]}) "
            "have an effect on the loss",
            "how the parts of a batch are accumulated: a sum over parts that each part overwrites, or an index that "
            "takes one part",
        )
