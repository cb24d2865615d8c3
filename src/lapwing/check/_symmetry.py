"""Members that are one: stacked copies of the parameters that start equal, and that the same gradient keeps equal."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from lapwing.core import format_list

from ._partition import arrays_in, by_path, is_array, is_float, partition
from ._report import CheckInputError, Report, fail

_LEAST = 3  # Different numbers in a row: less may be a constant that all rows start with.


def symmetry(gradient: Callable[[PyTree, PyTree], PyTree], params: PyTree, batch: PyTree) -> Report:
    """The members of an ensemble, stacked along the first axis of the parameters, must differ.

    **Arguments**

    - `gradient(params, batch)`: the gradient, with None for what is not trained.

    Members of which each gets examples of its own (all arrays of the batch have the axis too) are copies on purpose.

    >>> import jax, jax.numpy as jnp
    >>> loss = lambda w, x: jnp.mean((jax.nn.relu(jnp.einsum("bi,nij->nbj", x, w)).sum(-1) - 1) ** 2)
    >>> one = jax.random.normal(jax.random.key(0), (3, 4))
    >>> symmetry(jax.grad(loss), jnp.stack([one] * 5), jnp.ones((8, 3)))
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the 5 members that are stacked in params are equal, and so are ...
    """
    groups = list(_groups(params, "params"))
    copies = {path: group for path, group in groups if _are_equal(group, exact=True)}
    if not copies:
        raise CheckInputError("no parameters are stacked along a first axis with equal rows")
    examples = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(batch) if is_array(leaf)}
    given = partition(params, is_array, "params")
    run = jax.jit(lambda leaves, batch: arrays_in(gradient(given.combine(leaves), batch)))
    found = by_path(run(list(given.leaves), batch), "params")
    for path, group in copies.items():
        count = len(next(iter(group.values())))
        slopes = {each: np.asarray(found[each]) for each in group if found.get(each) is not None}
        if not slopes or examples == {(count,)} or not any(slope.any() for slope in slopes.values()):
            continue
        if _are_equal(slopes, exact=False):
            fail(
                "symmetry",
                f"the {count} members that are stacked in {path} are equal, and so are their gradients: they stay "
                f"equal for ever, and are one member ({format_list(list(group), 3)})",
                "the keys of the initialization: give each member its own, jax.random.split(key, n), not one key n "
                "times",
                list(group),
            )
    return Report(
        "symmetry", f"{len(copies)} stacks of equal rows have gradients that differ", {"stacks": len(copies)}
    )


def _groups(tree: PyTree, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The largest parts of a tree whose floating-point leaves are stacks of the same number of rows: their leaves."""
    leaves = {each: leaf for each, leaf in by_path(tree, path).items() if is_float(leaf)}
    counts = {np.shape(leaf)[0] if np.ndim(leaf) else 0 for leaf in leaves.values()}
    if len(counts) == 1 and counts.pop() > 1 and any(np.ndim(leaf) > 2 for leaf in leaves.values()):
        yield path, leaves
        return
    children = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: node is not tree)[0]
    for key, child in children:
        if child is not tree and jax.tree.leaves(child):
            yield from _groups(child, path + jax.tree_util.keystr(key))


def _are_equal(group: dict[str, Any], exact: bool) -> bool:
    """Whether the rows of all leaves are equal, and not only numbers that they all start with."""
    for leaf in map(np.asarray, group.values()):
        values = leaf.astype(np.float64)
        scale = 0.0 if exact else 1e-4 * max(float(np.abs(values).max()), 1e-12)
        if (np.abs(values - values[:1]) > scale).any():
            return False
    return not exact or any(np.unique(np.asarray(leaf[0])).size >= _LEAST for leaf in group.values())
