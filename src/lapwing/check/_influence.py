"""Which outputs depend on which inputs: some entries of the inputs are replaced, and the outputs compared.

New entries are drawn from the values that the array already has, so that tokens stay tokens and pixels stay pixels. A
difference within rounding is no change.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from ._partition import as_function, by_path, compiled_for, is_array, partition
from ._report import CheckInputError

# A kernel may group rows in another way, and so round rows that depend on nothing else differently.
_ROUNDINGS = 16


def compiled(function: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """The compiled function, or the function itself if it cannot be traced (an `if` on a value)."""
    function = as_function(function)
    given = partition(args, is_array)
    jitted = compiled_for(lambda leaves: function(*given.combine(leaves)))

    def call(*args: Any) -> Any:
        return jitted(list(partition(args, is_array).leaves))

    try:
        call(*args)
    except jax.errors.JAXTypeError:
        return function
    return call


def axes_of(axis: Any, tree: Any, what: str) -> list[int | None]:
    """The non-negative axis of every leaf. `axis` is an int or a prefix tree of ints, as for `jax.vmap`."""
    try:
        spread = jax.tree.map(
            lambda each, branch: [each] * len(jax.tree.leaves(branch)),
            axis,
            tree,
            is_leaf=lambda leaf: leaf is None,
        )
    except ValueError as error:
        raise CheckInputError(f"{what} should be an int or a prefix tree of ints: {error}") from None
    flat = jax.tree.leaves(spread, is_leaf=lambda leaf: leaf is None)
    leaves = by_path(tree).items()
    return [_non_negative(each, path, leaf, what) for each, (path, leaf) in zip(flat, leaves, strict=True)]


def _non_negative(axis: int | None, path: str, leaf: Any, what: str) -> int | None:
    rank = np.ndim(leaf)
    if axis is None:
        return None
    if not -rank <= axis < rank:
        raise CheckInputError(
            f"{what}={axis} needs an array of {axis + 1 if axis >= 0 else -axis} axes or more, but "
            f"{path or 'it'} has shape {np.shape(leaf)}; name another axis, or None for this one"
        )
    return axis % rank


def common_size(tree: Any, axes: Sequence[int | None], what: str) -> int:
    """The number of examples (or time steps) that all leaves have along their axes."""
    sizes = {
        path or "it": np.shape(leaf)[axis]
        for (path, leaf), axis in zip(by_path(tree).items(), axes, strict=True)
        if axis is not None
    }
    if len(set(sizes.values())) != 1:
        raise CheckInputError(
            f"expected the same size along {what} everywhere, found {sizes or 'no array with it'}"
        )
    return next(iter(sizes.values()))


def redrawn(tree: Any, axes: Sequence[int | None], chosen: Any, random: np.random.Generator) -> Any:
    """The tree with other values of its own at the indices `chosen` (an int or a slice) along the axes."""
    leaves, structure = jax.tree.flatten(tree)
    new = [
        leaf if axis is None or not is_drawable(leaf) else _redrawn(np.asarray(leaf), axis, chosen, random)
        for leaf, axis in zip(leaves, axes, strict=True)
    ]
    if all(a is b or np.array_equal(a, b) for a, b in zip(leaves, new, strict=True)):
        raise CheckInputError("the inputs have one value everywhere; give inputs that differ")
    return jax.tree.unflatten(structure, new)


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


def changes(before: Any, after: Any) -> list[Bool[np.ndarray, "..."]]:
    """For every output, which of its entries changed."""
    return [
        np.asarray(_changes(np.asarray(a), np.asarray(b)))
        for a, b in zip(*map(jax.tree.leaves, (before, after)), strict=True)
    ]


def _changes(a: np.ndarray, b: np.ndarray) -> Any:
    if not jnp.issubdtype(a.dtype, jnp.floating):
        return a != b
    rounding = float(jnp.finfo(a.dtype).eps)
    a, b = a.astype(np.float64), b.astype(np.float64)
    largest = max(float(np.max(np.abs(each[np.isfinite(each)]), initial=0.0)) for each in (a, b))
    with np.errstate(invalid="ignore"):
        same = np.abs(a - b) <= _ROUNDINGS * rounding * largest
        return ~(same | (a == b) | (np.isnan(a) & np.isnan(b)))


def along(flags: Bool[np.ndarray, "..."], axis: int) -> Any:
    """Whether anything is true at each index of an axis."""
    return flags.any(axis=tuple(each for each in range(flags.ndim) if each != axis))
