"""Units of a layer that are one unit: they begin with equal weights, and the gradient keeps them equal."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ._partition import arrays_in, by_path, is_array, is_float, partition
from ._report import fail

_LEAST = 3


def check_units(gradient: Callable[[PyTree, PyTree], PyTree], params: PyTree, batch: PyTree) -> None:
    """Raises if all columns of a matrix (or all output channels of a kernel) are equal, and have equal gradients."""
    leaves = by_path(params, "params")
    equal = [
        path for path, leaf in leaves.items() if is_float(leaf) and np.ndim(leaf) >= 2 and _is_equal(leaf)
    ]
    if not equal:
        return
    given = partition(params, is_array, "params")
    run = jax.jit(lambda leaves, batch: arrays_in(gradient(given.combine(leaves), batch)))
    slopes = by_path(run(list(given.leaves), batch), "params")
    for path in equal:
        slope = np.asarray(slopes[path], np.float64) if slopes.get(path) is not None else np.zeros(1)
        if slope.any() and np.isfinite(slope).all() and _is_equal(slope, 1e-5 * float(np.abs(slope).max())):
            fail(
                "symmetry",
                f"all {np.shape(leaves[path])[-1]} units of {path} begin with equal weights, and have equal gradients: "
                "they stay equal for ever, and are one unit",
                "the initialization: weights are drawn at random, not set to one number",
                [path],
            )


def _is_equal(leaf: Any, within: float = 0.0) -> bool:
    values = np.asarray(leaf, np.float64)
    if values.shape[-1] < _LEAST or values.size == values.shape[-1]:
        return False
    return bool((np.abs(values - values[..., :1]) <= within).all())
