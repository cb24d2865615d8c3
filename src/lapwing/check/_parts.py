"""Plain functions, Equinox modules and Flax nnx modules, all seen as functions of arrays.

Everything but nnx modules is a tree of arrays and other things already. An nnx module changes itself when it is called
(statistics, random counts), so it is taken apart, and each call gets a new one put together from the same numbers.
Flax is never imported: who hands over an nnx module has imported it.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ._report import CheckInputError


class Parts(NamedTuple):
    """Some leaves of a tree, with their paths, and the way back to the tree with others in their place."""

    paths: tuple[str, ...]
    leaves: tuple[Any, ...]
    join: Callable[[Sequence[Any]], Any]


def is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)


def is_float(leaf: Any) -> bool:
    return is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.floating)


def parts(tree: Any, keep: Callable[[Any], bool], name: str = "") -> Parts:
    """The leaves for which `keep` is true. Of an nnx module only its parameters are asked for."""
    if is_module(tree):
        nnx = _nnx()
        graph, trained, rest = nnx.split(tree, nnx.Param, ...)
        inner = parts(trained, keep, name)
        return inner._replace(join=lambda leaves: nnx.merge(graph, inner.join(leaves), rest, copy=True))
    found, structure = jax.tree_util.tree_flatten_with_path(tree)
    kept = [keep(leaf) for _, leaf in found]

    def join(leaves: Sequence[Any]) -> Any:
        waiting = iter(leaves)
        return jax.tree.unflatten(
            structure, [next(waiting) if ours else leaf for (_, leaf), ours in zip(found, kept, strict=True)]
        )

    chosen = [pair for pair, ours in zip(found, kept, strict=True) if ours]
    return Parts(
        tuple(name + jax.tree_util.keystr(path) for path, _ in chosen),
        tuple(leaf for _, leaf in chosen),
        join,
    )


def as_function(model: Callable[..., Any]) -> Callable[..., Any]:
    """The model as a function that may be called and traced at will and always begins in the same state."""
    if not is_module(model):
        return model
    graph, state = _nnx().split(model)
    return lambda *inputs: _nnx().merge(graph, state, copy=True)(*inputs)


def scalar_of(result: Any) -> Any:
    """The loss, from what a loss function returns: a scalar, or a scalar and something else."""
    loss: Any = result[0] if isinstance(result, tuple) and result else result
    if jnp.shape(loss) != ():
        raise CheckInputError(
            f"expected a loss that returns a scalar or (scalar, more), found shape {jnp.shape(loss)}; take its mean"
        )
    return loss


def needs_parameters(chosen: Parts) -> None:
    if not chosen.leaves:
        raise CheckInputError(
            "expected parameters with floating-point arrays in them, found none; "
            "give a tree of arrays, an Equinox module or an nnx module"
        )


def module_state(*trees: Any) -> dict[str, Any]:
    """What the nnx modules among these hold, by path, and a call may change behind the caller's back.

    Counts of random numbers are left out: where they matter, the results differ.
    """
    return {
        jax.tree_util.keystr(path): np.array(leaf)
        for module in jax.tree.leaves(trees, is_leaf=is_module)
        if is_module(module)
        for path, leaf in jax.tree_util.tree_flatten_with_path(
            _nnx().state(module, _nnx().Not(_nnx().RngState))
        )[0]
    }


def is_module(node: Any) -> bool:
    """Whether it is an nnx module, which changes itself when it is called."""
    nnx = _nnx()
    return nnx is not None and isinstance(node, nnx.Module)


def cloned(node: Any) -> Any:
    """Another nnx module of the same numbers; anything else as it is."""
    return _nnx().clone(node) if is_module(node) else node


def _nnx() -> Any:
    return sys.modules.get("flax.nnx")
