"""Predictions must not depend on how much padding there is.

A mean over all positions, the state after the last of them, attention that looks at padding: each gives another answer
when the same example stands in a longer batch. So the batch is made longer by some positions of padding, as its mask
says, and the predictions for what was there are compared.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, PyTree

from lapwing.core import format_list

from ._influence import changes, is_drawable
from ._partition import by_path
from ._report import fail

_MORE = 3
_PADDED = 0.1


def check_padded(predict: Callable[[PyTree], Any], batch: PyTree) -> str:
    """Raises if longer padding changes the predictions; nothing is said of a batch without a mask of padding, or of a
    model of one length."""
    leaves = {path: np.asarray(leaf) for path, leaf in by_path(batch, "batch").items() if is_drawable(leaf)}
    found = [(path, real) for path, leaf in leaves.items() if (real := _mask(leaf)) is not None]
    if len(found) != 1 or len(leaves) != len(jax.tree.leaves(batch)):
        return ""
    (name, real), values = found[0], list(leaves.values())
    long = [leaf.ndim >= 2 and leaf.shape[:2] == real.shape for leaf in values]
    inputs = [leaf for leaf, yes in zip(values, long, strict=True) if yes and leaf.dtype.kind in "iuf"]
    if not all(_is_one_value(leaf[~real]) for leaf in inputs):
        return ""  # What stands where the mask is 0 is no padding.
    longer = [_longer(leaf, real) if yes else leaf for leaf, yes in zip(values, long, strict=True)]
    before = predict(batch)
    try:
        after = predict(jax.tree.unflatten(jax.tree.structure(batch), list(map(jax.numpy.asarray, longer))))
    except Exception:
        return ""  # A model of one length.
    moved = [_moved(one, two, real) for one, two in zip(*map(jax.tree.leaves, (before, after)), strict=True)]
    if any(moved):
        others = [path for path, yes in zip(leaves, long, strict=True) if yes]
        fail(
            "labels",
            f"the predictions depend on how much padding there is: with {_MORE} more positions of padding "
            f"({format_list(others, 4)}, of which {name} says what is padding) those for the same examples change",
            f"where {name} is used: a mean is a sum of what is real divided by its count, a last state is that of the "
            "last real position, and attention needs the mask too",
            [name],
        )
    return "longer padding changes no prediction"


def _mask(leaf: np.ndarray) -> Bool[np.ndarray, "batch time"] | None:
    """What is real, if an array says it: ones, then zeros, in rows of different lengths."""
    if leaf.ndim != 2 or min(leaf.shape) < 3 or set(np.unique(leaf).tolist()) != {0, 1}:
        return None
    real = leaf.astype(bool)
    is_mask = (np.diff(real.astype(int), axis=1) <= 0).all() and real[:, 0].all()
    return real if is_mask and len(np.unique(real.sum(1))) > 2 and (~real).mean() >= _PADDED else None


def _is_one_value(values: np.ndarray) -> bool:
    return values.size == 0 or bool((values == values.reshape(-1)[0]).all())


def _longer(leaf: np.ndarray, real: np.ndarray) -> np.ndarray:
    """The array with more of what it has where there is padding."""
    pad = leaf[~real][0]
    return np.concatenate([leaf, np.broadcast_to(pad, (len(leaf), _MORE, *leaf.shape[2:]))], 1)


def _moved(before: Any, after: Any, real: np.ndarray) -> bool:
    """Whether what is real among the predictions has changed: of each example, or of each of its positions."""
    one, two = np.asarray(before), np.asarray(after)
    if one.ndim >= 2 and one.shape[:2] == real.shape and two.shape[1] == one.shape[1] + _MORE:
        one, two = one[real], two[:, : one.shape[1]][real]
    if one.shape != two.shape or one.shape[:1] not in ((len(real),), (int(real.sum()),)):
        return False
    return any(flags.any() for flags in changes([one], [two])) and not np.allclose(
        one, two, rtol=1e-3, atol=1e-4
    )
