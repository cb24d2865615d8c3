"""The structure guard: trees that must have the same leaves, such as parameters, their gradient and optimizer state.

Trees are compared by the paths of their leaves and not by their types, so that the message can name the leaf; a list
where a tuple was is reported only when all leaves agree. Leaves may come from jax, numpy or torch; a plain Python
number is a leaf without a shape that fits any dtype of its kind, as the numbers of V-values are.
"""

import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lapwing.core import format_list

from ._paths import TreeError

_KINDS = {"f": "float", "i": "int", "u": "int", "b": "bool", "c": "complex"}


class StructureError(TreeError):
    """Trees that should have the same leaves and do not. `differences` names each leaf."""

    def __init__(self, message: str, differences: Sequence[str]) -> None:
        super().__init__(message)
        self.differences = tuple(differences)


def structure(**trees: Any) -> int:
    """Raises an error unless every tree has the leaves of the first: the same paths, shapes and dtypes.

    **Arguments**: the trees by name; the names are used in the message.

    **Returns**: the number of leaves.

    >>> params = {"w": np.zeros((2, 3)), "b": np.zeros(3)}
    >>> structure(params=params, gradient=params)
    2
    >>> structure(params=params, gradient={"w": np.zeros((3, 2))})
    Traceback (most recent call last):
    lapwing.trees._structure.StructureError: gradient does not have the leaves of params: gradient lacks ['b']
    (float64[3]); ['w'] is float64[3,2] in gradient and float64[2,3] in params. Look at ...
    """
    if len(trees) < 2:
        raise TreeError(
            f"expected two trees or more by name, found {len(trees)}; write structure(params=..., gradient=...)"
        )
    (expected_name, expected), *others = trees.items()
    wanted = dict(_leaves(expected))
    for name, tree in others:
        differences = list(_differences(expected_name, wanted, name, dict(_leaves(tree))))
        if not differences:
            differences = list(_node_differences(expected_name, expected, name, tree))
        if differences:
            raise StructureError(
                f"{name} does not have the leaves of {expected_name}: {format_list(differences)}. Look at what built "
                f"{name}: a leaf that appears or vanishes comes from state that outlived a change of {expected_name} "
                "(pruning, a new layer, another checkpoint).",
                differences,
            )
    return len(wanted)


def _leaves(tree: Any) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
    """Each leaf's path, with its dtype and shape."""
    import jax

    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        yield jax.tree_util.keystr(path), _dtype_and_shape(leaf)


def _dtype_and_shape(leaf: Any) -> tuple[str, tuple[int, ...]]:
    if hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
        return str(leaf.dtype).removeprefix("torch."), tuple(leaf.shape)
    if isinstance(leaf, numbers.Number):
        return f"Python {type(leaf).__name__}", ()
    return f"a {type(leaf).__name__}", ()


def _differences(expected: str, wanted: Mapping, name: str, got: Mapping) -> Iterator[str]:
    for path in [path for path in wanted if path not in got]:
        yield f"{name} lacks {_place(path)} ({_show(wanted[path])})"
    for path in [path for path in got if path not in wanted]:
        yield f"{name} has {_place(path)} ({_show(got[path])}), which {expected} does not have"
    for path, leaf in wanted.items():
        if path in got and not _fit(leaf, got[path]):
            yield f"{_place(path)} is {_show(got[path])} in {name} and {_show(leaf)} in {expected}"


def _fit(a: tuple[str, tuple[int, ...]], b: tuple[str, tuple[int, ...]]) -> bool:
    if a[1] != b[1]:
        return False
    python = any(dtype.startswith("Python ") for dtype, _ in (a, b))
    return _kind(a[0]) == _kind(b[0]) if python else a[0] == b[0]


def _kind(dtype: str) -> str:
    try:
        return _KINDS[np.dtype(dtype).kind]
    except (TypeError, KeyError):
        # bfloat16 and its like are none of numpy's own kinds.
        return "float" if "float" in dtype else dtype.removeprefix("Python ")


def _show(leaf: tuple[str, tuple[int, ...]]) -> str:
    dtype, shape = leaf
    return dtype if dtype.startswith(("Python ", "a ")) else f"{dtype}[{','.join(map(str, shape))}]"


def _place(path: str) -> str:
    return path or "the top"


def _node_differences(expected: str, wanted: Any, name: str, got: Any, path: str = "") -> Iterator[str]:
    """The branches of other types, in trees whose leaves agree: `jax.tree.map` over both would raise."""
    import jax

    ours, theirs = type(wanted), type(got)
    if ours is not theirs and not (isinstance(wanted, Mapping) and isinstance(got, Mapping)):
        if jax.tree.structure(wanted) != jax.tree.structure(got):
            yield f"{_place(path)} is a {theirs.__name__} in {name} and a {ours.__name__} in {expected}"
        return
    children = [_children(node) for node in (wanted, got)]
    for (key, a), (_, b) in zip(*children, strict=False):
        yield from _node_differences(expected, a, name, b, path + key)


def _children(node: Any) -> list[tuple[str, Any]]:
    """The branches and leaves right below a node, by key."""
    import jax

    pairs = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda each: each is not node)[0]
    return (
        []
        if jax.tree_util.all_leaves([node])
        else [(jax.tree_util.keystr(path), each) for path, each in pairs]
    )
