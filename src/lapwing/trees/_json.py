"""Trees to JSON and back without loss: a float32 is written with all the digits of its double.

Text, lists, true, null and NaN are no V-values: the error names their path.
"""

import json
import math
from typing import Any

from ._algebra import map_leaves
from ._paths import Tree, TreeError, paths, show_path


def to_json(value: Any, indent: int | None = None) -> str:
    """Returns the tree as JSON text.

    >>> to_json({"a": {"x": 0.5}, "b": 2.0})
    '{"a": {"x": 0.5}, "b": 2.0}'
    """
    _check_finite(value)
    try:
        return json.dumps(map_leaves(float, value), indent=indent)
    except RecursionError:
        raise TreeError(_TOO_DEEP) from None


def from_json(text: str) -> Tree:
    """Returns the tree in the JSON text, with floats at its leaves.

    >>> from_json('{"a": {"x": 0.5}, "b": 2}')
    {'a': {'x': 0.5}, 'b': 2.0}
    """
    try:
        value = json.loads(
            text, parse_int=float
        )  # An integer too large for a float is infinite, and refused below.
    except RecursionError:
        raise TreeError(_TOO_DEEP) from None
    except json.JSONDecodeError as error:
        raise TreeError(
            f"expected the JSON text of a tree, but {error}; write nested objects of numbers"
        ) from None
    _check_finite(value)
    return map_leaves(float, value)


_TOO_DEEP = (
    "the tree is nested too deeply for JSON on this Python, whose json module recurses; "
    "flatten it with `paths` and store the leaves by path"
)


def _check_finite(value: Any) -> None:
    for path, leaf in paths(value).items():
        if not math.isfinite(leaf):
            raise TreeError(
                f"JSON has only finite numbers, but {show_path(path)} is {leaf}; replace or prune it"
            )
