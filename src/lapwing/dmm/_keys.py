"""Where a number is in a V-value: a number n and `{":number": n}` are the same, so a key can be a leaf in one value and
a branch in another."""

from collections.abc import Iterable

from lapwing import trees
from lapwing.trees import NUMBER, Path

from ._activation import MachineError


def place(path: Path) -> Path:
    """The path without ":number" at its end: the same for a number and for that number in a branch.

    >>> place(("a", ":number")), place(("a",)), place((":number",))
    (('a',), ('a',), ())
    """
    while path and path[-1] == NUMBER:
        path = path[:-1]
    return path


def nested_path(path: Path, keys: frozenset[Path]) -> Path:
    """The path of a leaf in a field with these keys, where it may have met a tree."""
    found = path
    while found not in keys:
        if not any(key[: len(found)] == found for key in keys):
            raise MachineError(
                f"a value has the key {trees.show_path(path)}, which was not inferred when the machine was compiled; "
                "an activation has to treat a missing key and a zero alike"
            )
        found = (*found, NUMBER)
    return found


def normalised(keys: Iterable[Path]) -> tuple[Path, ...]:
    """The keys sorted, where a leaf that is also a branch is at the branch's ":number".

    >>> normalised([("a",), ("a", "x"), ("b",)])
    (('a', ':number'), ('a', 'x'), ('b',))
    """
    found = set(keys)
    branches = {path[:depth] for path in found for depth in range(len(path))}
    while both := found & branches:
        found = (found - both) | {(*path, NUMBER) for path in both}
        branches |= both
    return tuple(sorted(found))
