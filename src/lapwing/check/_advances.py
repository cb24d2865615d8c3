"""An optimizer driven for some updates: its state must advance, and its clip must act on gradients, not on updates."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from lapwing.core import format_list

from ._partition import by_path, is_array, is_float
from ._report import fail

_UPDATES = 4
_LONGEST = 64  # An optimizer that accumulates more gradients than this for one update is left alone.
_SMALL, _LARGE = (1e-4, 1e-2), (1e6, 1e8)


def check_advances(made: Any, params: PyTree, period: int = 1) -> None:
    """Some updates with gradients must change the state of the optimizer, and whatever in it starts as zeros in the
    shapes of the parameters: moments. `period`: how many gradients it accumulates for an update."""
    if period > _LONGEST:
        return
    zeros = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if is_float(leaf) else leaf, params)

    def run(params: Any) -> Any:
        start = made.init(params)

        def update(carry: Any, size: jax.Array) -> Any:
            state, changed = carry
            gradient = jax.tree.map(lambda leaf: leaf + size.astype(leaf.dtype), zeros)
            _, after = made.update(gradient, state, params)
            moved = jax.tree.map(lambda old, new: jnp.any(old != new), start, after)
            return (after, jax.tree.map(jnp.logical_or, changed, moved)), None

        never = jax.tree.map(lambda _: jnp.zeros((), bool), start)
        sizes = 1.0 + jnp.arange(max(_UPDATES, 2 * period))
        return start, jax.lax.scan(update, (start, never), sizes)[0][1]

    try:
        start, changed = jax.jit(run)(params)
    except Exception:
        return  # It needs more than gradients and parameters, or its state has leaves that cannot be compared.
    moved = {path: bool(leaf) for path, leaf in by_path(changed, "state").items()}
    if not moved:
        return
    still = list(moved)
    if any(moved.values()):
        still = [
            path for group in _moments(start, params) if not any(map(moved.get, group)) for path in group
        ]
    if still:
        whole = len(still) == len(moved)
        fail(
            "optimizer",
            f"{'the state' if whole else 'a part of the state'} of the optimizer never changes: "
            f"{max(_UPDATES, 2 * period)} updates leave every bit of {format_list(still, 3)} as it was at the start, "
            "so each update is computed as if it were the first",
            "the update of the optimizer, which should return the new state of the optimizer inside it, not the old "
            "one (a wrapper, a jax.lax.cond, a where between old and new)",
            still,
        )


def _moments(state: PyTree, params: PyTree) -> list[list[str]]:
    """The parts of a state that are trees of zeros, like the parameters: the paths of each."""
    structure = jax.tree.structure(params)
    is_like = lambda node: jax.tree.structure(node) == structure  # noqa: E731
    found = []
    for path, node in jax.tree_util.tree_leaves_with_path(state, is_leaf=is_like):
        if is_array(node) or not is_like(node):
            continue
        leaves = by_path(node, "state" + jax.tree_util.keystr(path))
        # Of factored moments, what is not needed for a leaf is a placeholder of another shape.
        has_shapes = list(map(np.shape, leaves.values())) == list(map(np.shape, jax.tree.leaves(params)))
        if has_shapes and all(is_float(leaf) and not np.asarray(leaf).any() for leaf in leaves.values()):
            found.append(list(leaves))
    return found


def check_clip_acts_on_gradients(made: Any, params: PyTree) -> None:
    """Of a large gradient the direction is kept and the update has a limit: it was clipped. What the optimizer keeps
    of the gradient must have a limit too, or the clip is behind it."""

    leaves, structure = jax.tree.flatten(params)

    def run(params: Any) -> Any:
        keys = jax.random.split(jax.random.key(0), len(leaves))
        drawn = [
            jax.random.normal(key, leaf.shape).astype(leaf.dtype) if is_float(leaf) else jnp.zeros_like(leaf)
            for key, leaf in zip(keys, leaves, strict=True)
        ]
        norm = jnp.sqrt(sum(jnp.sum(leaf.astype(jnp.float32) ** 2) for leaf in drawn))
        gradient = jax.tree.unflatten(structure, [leaf / norm.astype(leaf.dtype) for leaf in drawn])

        def of(size: Any) -> Any:
            scaled = jax.tree.map(lambda leaf: (leaf.astype(jnp.float32) * size).astype(leaf.dtype), gradient)
            update, state = made.update(scaled, made.init(params), params)
            floats = [leaf for leaf in jax.tree.leaves(state) if is_float(leaf) and jnp.ndim(leaf)]
            kept = jnp.stack([jnp.max(jnp.abs(leaf.astype(jnp.float32))) for leaf in floats])
            flat = [jnp.ravel(leaf.astype(jnp.float32)) for leaf in jax.tree.leaves(update) if is_float(leaf)]
            return jnp.concatenate(flat), jnp.max(kept)

        return jax.lax.map(of, jnp.array([*_SMALL, *_LARGE]))

    try:
        found, (_, _, before, after) = (np.asarray(each, np.float64) for each in jax.jit(run)(params))
    except Exception:
        return  # It needs more than gradients and parameters, or keeps nothing of them.
    _, small, _, limit = found
    sizes = [float(np.linalg.norm(update)) for update in found]
    if not np.isfinite(sizes).all() or min(sizes) == 0:
        return
    grows = np.isclose(sizes[1] / sizes[0], _SMALL[1] / _SMALL[0], rtol=1e-2)
    ends = np.isclose(sizes[2], sizes[3], rtol=1e-3)
    along = float(small @ limit) / (sizes[1] * sizes[3])
    if grows and ends and along > 1 - 1e-4 and after > 10 * before:
        fail(
            "optimizer",
            f"the clip comes after the learning rate: it limits the norm of the updates to {sizes[3]:.3g}, that is "
            f"{sizes[3] / sizes[1] / 1e2:.3g} times the first update, and a gradient that is too large is added to "
            "the momentum as it is",
            "the order of the chain: optax.chain(optax.clip_by_global_norm(…), optax.sgd(…)), clipping first",
        )
