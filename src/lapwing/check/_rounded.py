"""Updates that the dtype of a parameter rounds away: the parameter plus its update is the parameter."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ._optimizer import transformation_of
from ._partition import by_path
from ._training import Training

_TRIED = 16


class Rounded(NamedTuple):
    """The largest update of a leaf, the distance of its dtype to the next number there, and the dtype."""

    update: float
    spacing: float
    dtype: str


def rounded_away(training: Training, paths: Sequence[str]) -> dict[str, Rounded]:
    """Of these leaves, which do not change, those that have an update: it is too small for their dtype."""
    made: Any = training.task.optimizer
    if not hasattr(made, "update"):
        made = made(float(training.state.controls[training.state.rate_name]))
    made = transformation_of(made)
    trained = jax.tree.map(
        lambda leaf, train: None if train is False else leaf, training.params, training.mask
    )
    gradient = jax.jit(training.gradient)(training.params, training.batch())

    def run(gradient: Any, trained: Any) -> Any:
        state, largest = made.init(trained), jax.tree.map(jnp.zeros_like, trained)
        for _ in range(_TRIED):  # An optimizer that accumulates has no update at first.
            updates, state = made.update(gradient, state, trained)
            largest = jax.tree.map(lambda a, b: jnp.maximum(a, jnp.abs(b)).astype(a.dtype), largest, updates)
        return largest

    try:
        moved = by_path(jax.jit(run)(gradient, trained), "params")
    except Exception:
        return {}  # It needs more than a gradient and parameters.
    found = {}
    for path, leaf in by_path(trained, "params").items():
        if path not in paths or leaf.dtype.itemsize > 2:
            continue
        sizes, values = np.asarray(moved[path], np.float64), np.asarray(leaf, np.float64)
        if (sizes > 0).any():
            at = np.unravel_index(int(np.argmax(sizes)), sizes.shape)
            spacing = float(jnp.finfo(leaf.dtype).eps) * 2.0 ** np.floor(np.log2(abs(values[at]) or 1.0))
            found[path] = Rounded(float(sizes[at]), float(spacing), str(leaf.dtype))
    return found
