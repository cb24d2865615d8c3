"""Updates that the dtype of a parameter rounds away: the parameter plus its update is the parameter."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.core import format_list

from ._optimizer import transformation_of
from ._partition import by_path, is_float
from ._report import fail
from ._training import Training

_TRIED = 16
_REPEATED = 256
_STUCK = 0.25


class Rounded(NamedTuple):
    """The largest update of a leaf, the distance of its dtype to the next number there, and the dtype."""

    update: float
    spacing: float
    dtype: str


def rounded_away(training: Training, paths: Sequence[str]) -> dict[str, Rounded]:
    """Of these leaves, which do not change, those that have an update: it is too small for their dtype."""
    made, trained = _optimizer_of(training)
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


def check_resolution(training: Training) -> None:
    """Parameters of 16 bits must move where the same updates move parameters of 32 bits: one gradient is repeated, and
    an optimizer that keeps what is rounded away, or rounds at random, moves them sooner or later."""
    made, trained = _optimizer_of(training)
    narrow = [
        path
        for path, leaf in by_path(trained, "params").items()
        if is_float(leaf) and leaf.dtype.itemsize < 4
    ]
    if not narrow:
        return
    gradient = jax.jit(training.gradient)(training.params, training.batch())
    wide = lambda tree: jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if is_float(leaf) else leaf, tree)  # noqa: E731

    def repeated(params: Any, gradient: Any) -> Any:
        def step(carry: Any, _: None) -> Any:
            params, state, moved = carry
            updates, state = made.update(gradient, state, params)
            after = jax.tree.map(lambda leaf, update: (leaf + update).astype(leaf.dtype), params, updates)
            moved = jax.tree.map(lambda ever, old, new: ever | (old != new), moved, params, after)
            return (after, state, moved), None

        never = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, bool), params)
        after, _, moved = jax.lax.scan(step, (params, made.init(params), never), length=_REPEATED)[0]
        return after, moved

    try:
        run = jax.jit(repeated)
        moved = by_path(run(trained, gradient)[1], "params")
        ends = by_path(run(wide(trained), wide(gradient))[0], "params")
    except Exception:
        return  # It needs more than a gradient and parameters.
    wanted, stuck, of = 0, 0, []
    for path, leaf in by_path(trained, "params").items():
        if path in narrow:
            values = np.asarray(leaf, np.float64)
            far = np.abs(np.asarray(ends[path], np.float64) - values) > 2 * _spacing(values, leaf.dtype)
            still = far & ~np.asarray(moved[path])
            wanted, stuck = wanted + int(far.sum()), stuck + int(still.sum())
            of += [path] if still.mean() > _STUCK else []
    if stuck > _STUCK * max(wanted, 1) and of:
        dtype = by_path(trained, "params")[of[0]].dtype
        fail(
            "optimizer",
            f"{stuck / wanted:.0%} of the entries of {format_list(of, 3)} that {_REPEATED} updates move in float32 "
            f"never change in {dtype}: each update is smaller than half of the distance to the next number, and is "
            "rounded away",
            "the dtype of the parameters: keep them in float32 and cast them to bfloat16 in the loss, as "
            "FitConfig(precision='bfloat16') does, or raise the learning rate",
            of,
        )


def _optimizer_of(training: Training) -> tuple[Any, Any]:
    """The optimizer at the learning rate of the run, and the parameters that it trains."""
    made: Any = training.task.optimizer
    if not hasattr(made, "update"):
        made = made(float(training.state.controls[training.state.rate_name]))
    trained = jax.tree.map(
        lambda leaf, train: None if train is False else leaf, training.params, training.mask
    )
    return transformation_of(made), trained


def _spacing(values: np.ndarray, dtype: Any) -> np.ndarray:
    """The distance to the next number of this dtype."""
    sizes = np.maximum(np.abs(values), float(jnp.finfo(dtype).tiny))
    return float(jnp.finfo(dtype).eps) * 2.0 ** np.floor(np.log2(sizes))
