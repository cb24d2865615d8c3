"""Who moves whom: some entries of the inputs are changed, and one looks at which entries of the outputs move.

Changed entries are drawn from the values that the array holds already, so that tokens stay tokens and pixels stay
pixels. What moves by less than rounding explains has not moved.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._parts import as_function, is_array, parts
from ._report import CheckInputError

# Rows that depend on nothing else may still be rounded otherwise by a kernel that groups them in another way.
_ROUNDINGS = 16


def compiled(function: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """The function, compiled where it can be traced, as it is where it cannot (an `if` on a value)."""
    function = as_function(function)
    given = parts(args, is_array)
    jitted = jax.jit(lambda leaves: function(*given.join(leaves)))

    def call(*args: Any) -> Any:
        return jitted(list(parts(args, is_array).leaves))

    try:
        call(*args)
    except jax.errors.JAXTypeError:
        return function
    return call


def axes_of(axis: Any, tree: Any, what: str) -> list[int | None]:
    """The axis of every leaf, counted from the front. `axis` is a number, or a tree that begins like `tree`."""
    try:
        spread = jax.tree.map(
            lambda each, branch: [each] * len(jax.tree.leaves(branch)),
            axis,
            tree,
            is_leaf=lambda leaf: leaf is None,
        )
    except ValueError as error:
        raise CheckInputError(
            f"{what} should be a number or a tree that begins like what it is for: {error}"
        ) from None
    flat = jax.tree.leaves(spread, is_leaf=lambda leaf: leaf is None)
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [_axis_from_front(each, path, leaf, what) for each, (path, leaf) in zip(flat, leaves, strict=True)]


def _axis_from_front(axis: int | None, path: Any, leaf: Any, what: str) -> int | None:
    rank = np.ndim(leaf)
    if axis is None:
        return None
    if not -rank <= axis < rank:
        raise CheckInputError(
            f"{what}={axis} needs an array of {axis + 1 if axis >= 0 else -axis} axes or more, but "
            f"{jax.tree_util.keystr(path) or 'it'} has shape {np.shape(leaf)}; name another axis, or None for this one"
        )
    return axis % rank


def one_size(tree: Any, axes: Sequence[int | None], what: str) -> int:
    """How many examples (or moments) all leaves have along their axes."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    sizes = {
        jax.tree_util.keystr(path) or "it": np.shape(leaf)[axis]
        for (path, leaf), axis in zip(leaves, axes, strict=True)
        if axis is not None
    }
    if len(set(sizes.values())) != 1:
        raise CheckInputError(
            f"expected the same size along {what} everywhere, found {sizes or 'no array with it'}"
        )
    return next(iter(sizes.values()))


def changed(tree: Any, axes: Sequence[int | None], chosen: Any, random: np.random.Generator) -> Any:
    """The tree with others of its own values at the indices `chosen` (a number or a slice) along the axes."""
    leaves, structure = jax.tree.flatten(tree)
    moved = [
        leaf if axis is None or not is_drawable(leaf) else _redrawn(np.asarray(leaf), axis, chosen, random)
        for leaf, axis in zip(leaves, axes, strict=True)
    ]
    if all(old is new or np.array_equal(old, new) for old, new in zip(leaves, moved, strict=True)):
        raise CheckInputError(
            "the inputs hold one value only, so nothing can be changed in them; give inputs that differ"
        )
    return jax.tree.unflatten(structure, moved)


def is_drawable(leaf: Any) -> bool:
    return is_array(leaf) and not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)


def _redrawn(array: np.ndarray, axis: int, chosen: Any, random: np.random.Generator) -> np.ndarray:
    new = array.copy()
    where = (slice(None),) * axis + (chosen,)
    drawn = random.choice(array.ravel(), new[where].shape)
    if jnp.issubdtype(array.dtype, jnp.floating) and np.array_equal(drawn, new[where]):
        drawn = (new[where] + random.normal(size=drawn.shape)).astype(array.dtype)
    new[where] = drawn
    return new


def moved(before: Any, after: Any) -> list[np.ndarray]:
    """For every output, which of its entries moved."""
    return [
        np.asarray(_moved(np.asarray(a), np.asarray(b)))
        for a, b in zip(*map(jax.tree.leaves, (before, after)), strict=True)
    ]


def _moved(a: np.ndarray, b: np.ndarray) -> Any:
    if not jnp.issubdtype(a.dtype, jnp.floating):
        return a != b
    rounding = float(jnp.finfo(a.dtype).eps)
    a, b = a.astype(np.float64), b.astype(np.float64)
    slack = (
        _ROUNDINGS
        * rounding
        * max(float(np.max(np.abs(each[np.isfinite(each)]), initial=0.0)) for each in (a, b))
    )
    with np.errstate(invalid="ignore"):
        return ~((np.abs(a - b) <= slack) | (a == b) | (np.isnan(a) & np.isnan(b)))


def along(flags: np.ndarray, axis: int) -> Any:
    """Whether anything is true at each index of an axis."""
    return flags.any(axis=tuple(each for each in range(flags.ndim) if each != axis))
