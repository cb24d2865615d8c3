"""Plain functions, Equinox modules and Flax nnx modules, all as functions of arrays.

Everything but an nnx module is a pytree already. An nnx module changes itself when it is called (statistics, random
counts), so it is split, and each call gets a new module merged from the same arrays. Flax is never imported: whoever
passes an nnx module has imported it.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ._report import CheckInputError, check_function


class Partition(NamedTuple):
    """Some leaves of a tree with their paths; `combine` returns the tree with other leaves in their place."""

    paths: tuple[str, ...]
    leaves: tuple[Any, ...]
    combine: Callable[[Sequence[Any]], Any]


def is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)


def arrays_in(tree: Any) -> Any:
    """The tree with its arrays and numbers; functions and other leaves, which an Equinox module may have, are gone."""
    return jax.tree.map(lambda leaf: leaf if _is_numeric(leaf) else None, tree)


def _is_numeric(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | bool | int | float | complex)


def compiled_for(function: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """The compiled function of some arrays. Its result may hold functions, as an Equinox module does."""
    kept: list[tuple[Any, list[Any]]] = []

    def arrays(leaves: list[Any]) -> list[Any]:
        flat, structure = jax.tree.flatten(function(leaves))
        kept[:] = [(structure, [None if _is_numeric(leaf) else leaf for leaf in flat])]
        return [leaf for leaf in flat if _is_numeric(leaf)]

    jitted = jax.jit(arrays)

    def call(leaves: list[Any]) -> Any:
        numbers = iter(jitted(leaves))
        structure, others = kept[0]
        return jax.tree.unflatten(structure, [next(numbers) if leaf is None else leaf for leaf in others])

    return call


def is_float(leaf: Any) -> bool:
    return is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.floating)


def by_path(tree: Any, name: str = "") -> dict[str, Any]:
    """The leaves of a tree by path, written as `name['w'][0]`."""
    return {
        name + jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def partition(tree: Any, keep: Callable[[Any], bool], name: str = "") -> Partition:
    """The leaves for which `keep` is true; of an nnx module, only its parameters."""
    if is_module(tree):
        nnx = _nnx()
        graph, trained, rest = nnx.split(tree, nnx.Param, ...)
        inner = partition(trained, keep, name)
        return inner._replace(combine=lambda leaves: nnx.merge(graph, inner.combine(leaves), rest, copy=True))
    leaves, structure = jax.tree.flatten(tree)
    kept = [keep(leaf) for leaf in leaves]

    def combine(new: Sequence[Any]) -> Any:
        waiting = iter(new)
        return jax.tree.unflatten(
            structure, [next(waiting) if ours else leaf for leaf, ours in zip(leaves, kept, strict=True)]
        )

    chosen = {path: leaf for path, leaf in by_path(tree, name).items() if keep(leaf)}
    return Partition(tuple(chosen), tuple(chosen.values()), combine)


def parameters_in(params: Any) -> Partition:
    """The floating-point leaves of the parameters; an error if there are none."""
    chosen = partition(params, is_float, "params")
    if not chosen.leaves:
        raise CheckInputError(
            "expected parameters with floating-point arrays in them, found none; "
            "give a tree of arrays, an Equinox module or an nnx module"
        )
    return chosen


def trained_entries(chosen: Partition, params: Any, trainable: Any) -> list[np.ndarray]:
    """A boolean array for each chosen leaf: which entries are trained."""
    if trainable is None:
        return [np.ones(np.shape(leaf), bool) for leaf in chosen.leaves]
    masks = jax.tree.map(lambda leaf, mask: np.broadcast_to(mask, np.shape(leaf)), params, trainable)
    found = by_path(masks, "params")
    return [found[path] for path in chosen.paths]


def as_function(model: Callable[..., Any]) -> Callable[..., Any]:
    """The model as a function that always starts in the same state and may be traced."""
    check_function(model)
    if not is_module(model):
        return model
    graph, state = _nnx().split(model)
    return lambda *inputs: _nnx().merge(graph, state, copy=True)(*inputs)


def scalar_of(result: Any) -> Any:
    """The loss, from a loss function that returns a scalar or (scalar, more)."""
    loss: Any = result[0] if isinstance(result, tuple) and result else result
    if not (is_array(loss) or isinstance(loss, int | float | complex)):
        raise CheckInputError(
            f"expected a loss that returns a scalar or (scalar, more), found a {type(loss).__name__}"
        )
    if jnp.shape(loss) != ():
        raise CheckInputError(
            f"expected a loss that returns a scalar or (scalar, more), found shape {jnp.shape(loss)}; take its mean"
        )
    return loss


def module_state(*trees: Any) -> dict[str, Any]:
    """Everything the nnx modules in these trees hold, by path, except counts of random numbers.

    Where those matter, results differ.
    """
    return {
        path: np.array(leaf)
        for module in jax.tree.leaves(trees, is_leaf=is_module)
        if is_module(module)
        for path, leaf in by_path(_nnx().state(module, _nnx().Not(_nnx().RngState))).items()
    }


def is_module(node: Any) -> bool:
    """Whether it is an nnx module, which changes itself when it is called."""
    nnx = _nnx()
    return nnx is not None and isinstance(node, nnx.Module)


def cloned(node: Any) -> Any:
    """A copy of an nnx module; anything else unchanged."""
    return _nnx().clone(node) if is_module(node) else node


def _nnx() -> Any:
    return sys.modules.get("flax.nnx")
