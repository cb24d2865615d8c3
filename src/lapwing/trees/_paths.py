"""A tree as its leaves by path.

`paths` lists the leaves in sorted-key order, in which jax flattens dicts, so "the third leaf" is the same leaf
everywhere. A tree built from paths has no empty branches.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from lapwing.core import LapwingError

Tree = dict[str, Any]
"""A V-value: a nested dict with numbers as leaves."""
Path = tuple[str, ...]
"""The keys from the root of a tree to a leaf."""
# A path as a linked list from its end: a step deeper costs the same at any depth.
Trail = tuple[Any, str] | None


class TreeError(LapwingError, ValueError):
    """A value that is no V-value, or does not have the expected form; the message names the path."""


def show_path(path: Iterable[str]) -> str:
    """Formats a path for error messages.

    >>> show_path(("a", "x"))
    "'a'/'x'"
    """
    return "/".join(map(repr, path)) or "the top"


def is_number(leaf: Any) -> bool:
    if isinstance(leaf, np.generic):
        return isinstance(leaf, np.number)
    return hasattr(leaf, "dtype") or (isinstance(leaf, (int, float)) and not isinstance(leaf, bool))


def check_leaf(leaf: Any, trail: Trail) -> None:
    if not is_number(leaf):
        raise TreeError(
            f"a V-value has numbers at its leaves, but {show_path(path_of(trail))} is {leaf!r} "
            f"of type {type(leaf).__name__}; use a float, or a dict for a branch"
        )


def paths(value: Any) -> dict[Path, Any]:
    """Returns the leaves by path, in sorted-key order; a bare number is one leaf with the empty path.

    >>> paths({"b": 2.0, "a": {"y": 1.0, "x": 0.5}})
    {('a', 'x'): 0.5, ('a', 'y'): 1.0, ('b',): 2.0}
    """
    found: dict[Path, Any] = {}
    waiting: list[tuple[Trail, Any]] = [(None, value)]
    while waiting:
        trail, node = waiting.pop()
        if isinstance(node, dict):
            _check_keys(node, trail)
            waiting += [((trail, key), node[key]) for key in sorted(node, reverse=True)]
        else:
            check_leaf(node, trail)
            found[path_of(trail)] = node
    return found


def path_of(trail: Trail) -> Path:
    keys = []
    while trail is not None:
        trail, key = trail
        keys.append(key)
    return tuple(reversed(keys))


def _check_keys(node: dict, trail: Trail) -> None:
    for key in node:
        if not isinstance(key, str):
            raise TreeError(
                f"a V-value has string keys, but under {show_path(path_of(trail))} is the key {key!r} "
                f"of type {type(key).__name__}; write {str(key)!r}"
            )


def from_paths(leaves: Mapping[Path, Any]) -> Any:
    """Returns the tree with these leaves: the inverse of `paths`.

    >>> from_paths({("a", "x"): 0.5, ("b",): 2.0})
    {'a': {'x': 0.5}, 'b': 2.0}
    """
    top: Tree = {}
    for path, leaf in leaves.items():
        if not path:
            return leaf
        branch = top
        for depth, key in enumerate(path[:-1], start=1):
            branch = branch.setdefault(key, {})
            if not isinstance(branch, dict):
                raise TreeError(
                    f"{show_path(path[:depth])} cannot be a leaf and a branch at once; "
                    f"give either a number there or the leaf {show_path(path)}, not both"
                )
        if isinstance(branch.get(path[-1]), dict):
            raise TreeError(
                f"{show_path(path)} cannot be a leaf and a branch at once; "
                "give either a number there or leaves below it, not both"
            )
        branch[path[-1]] = leaf
    return top


def count(value: Any) -> int:
    """Returns the number of leaves.

    >>> count({"a": {"x": 1.0, "y": 0.0}, "b": {}})
    2
    """
    return len(paths(value))


def prune(value: Any, threshold: float) -> Any:
    """Keeps the leaves with |x| ≥ threshold and drops the branches that become empty. A NaN is kept, so that it is
    noticed.

    >>> prune({"a": {"x": 0.01}, "b": -2.0}, 0.1)
    {'b': -2.0}
    """
    return from_paths({path: leaf for path, leaf in paths(value).items() if not abs(leaf) < threshold})


class Difference(NamedTuple):
    """One leaf that differs; None if the tree does not have it.

    >>> from lapwing import trees
    >>> trees.diff({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 3.0})
    [Difference(path=('b',), left=2.0, right=3.0)]
    """

    path: Path
    left: Any
    right: Any


def diff(left: Any, right: Any, tolerance: float = 0.0) -> list[Difference]:
    """Lists where two trees differ: leaves that only one has, and leaves that are more than `tolerance` apart.

    >>> diff({"a": 1.0, "b": 2.0}, {"a": 1.0, "c": 2.0})
    [Difference(path=('b',), left=2.0, right=None), Difference(path=('c',), left=None, right=2.0)]
    """
    ours, theirs = paths(left), paths(right)
    found = []
    for path in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(path), theirs.get(path)
        if a is None or b is None or not _close(a, b, tolerance):
            found.append(Difference(path, a, b))
    return found


def _close(a: Any, b: Any, tolerance: float) -> bool:
    # `a == b` first: infinities are equal to themselves, though their difference is not a number.
    return bool(a == b) or bool(a != a and b != b) or bool(abs(a - b) <= tolerance)


def transpose(matrix: Tree) -> Tree:
    """Returns `matrix[to][to_field][from][from_field]` as `[from][from_field][to][to_field]`: what reads each output.

    >>> transpose({"norm": {"dict": {"accum": {"dict": 0.5}}}})
    {'accum': {'dict': {'norm': {'dict': 0.5}}}}
    """
    turned = {}
    for path, weight in paths(matrix).items():
        if len(path) != 4:
            raise TreeError(
                "a network matrix has its weights at [to][to_field][from][from_field], "
                f"four keys deep, but the one at {show_path(path)} is {len(path)} deep; "
                "pass a matrix, not another tree"
            )
        turned[path[2:] + path[:2]] = weight
    return from_paths(turned)
