"""The memory of an adaptive optimizer: its average of squares is longer than that of gradients.

With the two decays swapped (`b1=0.999, b2=0.9`) an update is an average of a thousand gradients, divided by the size of
the last ten, and grows without bound where gradients become small. What is an average of gradients doubles with them,
what is one of their squares grows four times; how fast each fades shows in a step without a gradient.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ._partition import by_path, is_float
from ._report import fail


def check_moments(made: Any, params: PyTree) -> None:
    """Raises if an average of gradients remembers longer than the square root of what that of their squares keeps."""
    zeros = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if is_float(leaf) else leaf, params)

    def run(size: jax.Array) -> Any:
        slopes = jax.tree.map(lambda leaf: leaf + size.astype(leaf.dtype) if is_float(leaf) else leaf, zeros)
        _, first = made.update(slopes, made.init(zeros), zeros)
        _, second = made.update(zeros, first, zeros)
        return first, second

    try:
        (once, later), (twice, _) = (jax.jit(run)(jnp.float32(size)) for size in (1e-3, 2e-3))
    except Exception:
        return  # It needs more than gradients and parameters.
    kept: dict[int, list[float]] = {1: [], 2: []}
    ours, after, theirs = (by_path(each, "state") for each in (once, later, twice))
    for path, leaf in ours.items():
        values = np.ravel(np.asarray(leaf, np.float64)) if is_float(leaf) and np.ndim(leaf) else np.zeros(0)
        if not values.size or not values.all():
            continue
        grows = np.ravel(np.asarray(theirs[path], np.float64)) / values
        fades = np.ravel(np.asarray(after[path], np.float64)) / values
        for power in kept:
            if np.allclose(grows, 2.0**power, rtol=1e-2) and np.ptp(fades) < 1e-3:
                kept[power].append(float(fades[0]))
    if not (kept[1] and kept[2]):
        return
    slope, square = max(kept[1]), min(kept[2])
    if 0 < square < 1 and slope**2 > square and slope > square:
        fail(
            "optimizer",
            f"the optimizer keeps {slope:.4g} of its average of gradients in a step, and only {square:.4g} of that of "
            "their squares: the two decays are swapped, and an update has no bound",
            "the decays: b1=0.9 for the gradients and b2=0.999 for their squares, as in optax.adam",
        )
