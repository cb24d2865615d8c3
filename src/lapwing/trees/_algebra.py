"""The linear algebra of V-values: add, scale, mask, lincomb and the largest-leaf norm.

The zero is the empty tree. A number that meets a tree counts as `{":number": n}`. `mask` and `lincomb` walk over two
trees; `mask` keeps the paths and `lincomb` sums them up.

`lincomb(m, a + b) = lincomb(m, a) + lincomb(m, b)` holds unless `m` has a `":number"` key below a leaf of `a` or `b`:
the sum may turn that leaf into a branch, and a tree in `m` over a number gives nothing.
"""

from collections.abc import Callable, Iterator
from typing import Any

from ._paths import Trail, Tree, check_leaf, from_paths, is_number, path_of, paths

NUMBER = ":number"
"""The key under which a tree holds a number of its own, beside its branches."""


def as_tree(value: Any) -> Tree:
    """Returns the value as a tree: a bare number n is `{":number": n}`.

    >>> as_tree(2.0)
    {':number': 2.0}
    """
    return value if isinstance(value, dict) else {NUMBER: value}


def number(value: Any) -> Any:
    """Returns the `":number"` leaf of the value, 0 where it has none.

    >>> number({":number": 2.0, "a": 1.0}), number({}), number(3.0)
    (2.0, 0.0, 3.0)
    """
    while isinstance(value, dict):
        value = value.get(NUMBER, 0.0)
    return value


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Applies a function to every leaf.

    >>> map_leaves(abs, {"a": -1.0, "b": {"c": 2.0}})
    {'a': 1.0, 'b': {'c': 2.0}}
    """
    result: Tree = {}
    waiting: list[tuple[Tree, Tree]] = [({"": value}, result)]
    while waiting:
        source, target = waiting.pop()
        for key, child in source.items():
            if isinstance(child, dict):
                target[key] = {}
                waiting.append((child, target[key]))
            else:
                target[key] = function(child)
    return result[""]


def scale(factor: Any, value: Any) -> Any:
    """Multiplies every leaf by the factor.

    >>> scale(2.0, {"a": 1.0, "b": {"c": -3.0}})
    {'a': 2.0, 'b': {'c': -6.0}}
    """
    return map_leaves(lambda leaf: factor * leaf, _checked(value))


def add(*values: Any) -> Any:
    """Returns the key-wise sum; where numbers meet trees, the numbers count as `{":number": n}`.

    >>> add({"a": 1.0, "b": 2.0}, {"a": 1.5, "b": {"c": 1.0}})
    {'a': 2.5, 'b': {':number': 2.0, 'c': 1.0}}
    """
    total: Tree = {}
    for value in values:
        _add_into(total, {"": _checked(value)})
    return total.get("", {})


def _add_into(total: Tree, value: Tree) -> None:
    """Adds in place to a tree without other references."""
    waiting = [(total, value)]
    while waiting:
        target, source = waiting.pop()
        for key, child in source.items():
            present = target.get(key, {})
            if isinstance(child, dict):
                if child or key not in target:
                    target[key] = as_tree(present)
                    waiting.append((target[key], child))
            elif not isinstance(present, dict):
                target[key] = present + child
            elif present:
                waiting.append((present, {NUMBER: child}))
            else:
                target[key] = child


def mask(weights: Any, value: Any) -> Any:
    """Multiplies two trees: number times number, a number in `weights` scales the subtree at its path, and a tree in
    `weights` over a number gives nothing.

    >>> mask({"a": 2.0, "b": {"c": 1.0}}, {"a": {"x": 1.0, "y": 3.0}, "b": {"c": 5.0, "d": 6.0}, "e": 7.0})
    {'a': {'x': 2.0, 'y': 6.0}, 'b': {'c': 5.0}}
    """
    return from_paths({path_of(trail): scale(w, part) for trail, w, part in _meetings(weights, value)})


def lincomb(weights: Any, value: Any) -> Any:
    """Like `mask`, but everything is summed into one V-value or one number; without common paths the empty tree.

    >>> lincomb({"a": 2.0, "b": 3.0, "c": 2.5}, {"a": 2.0, "b": 3.0, "c": {":number": 6.0, "u": 1.0}})
    {':number': 28.0, 'u': 2.5}
    """
    return add(*(scale(weight, part) for _, weight, part in _meetings(weights, value)))


def _meetings(weights: Any, value: Any) -> Iterator[tuple[Trail, Any, Any]]:
    """Every path with a number in `weights` and something in `value`."""
    waiting: list[tuple[Trail, Any, Any]] = [(None, weights, value)]
    while waiting:
        trail, weight, part = waiting.pop()
        if not isinstance(weight, dict):
            check_leaf(weight, trail)
            yield trail, weight, part
        elif isinstance(part, dict):
            shared = [key for key in weight if key in part]
            waiting += [((trail, key), weight[key], part[key]) for key in reversed(shared)]


def max_norm(value: Any) -> Any:
    """Returns the largest |leaf|, 0 for the empty tree.

    >>> max_norm({"a": -3.0, "b": {"c": 2.0}}), max_norm({})
    (3.0, 0.0)
    """
    return max((abs(leaf) for leaf in paths(value).values()), default=0.0)


def _checked(value: Any) -> Any:
    """Returns the value if every leaf is a number: `2 * "a"` would silently be `"aa"`."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            waiting += node.values()
        elif type(node) is not float and not is_number(node):
            paths(value)
    return value
