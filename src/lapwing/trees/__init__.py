"""V-values: finite trees (nested dicts with string keys, numbers at the leaves) as a vector space.

A missing key means zero, so any two trees can be added; the empty tree `{}` is the zero. Leaves are floats, numpy
numbers or anything with a dtype (a jax array or tracer), so the same algebra can be differentiated. No function
recurses: a tree may be 10,000 levels deep.

>>> from lapwing import trees
>>> trees.lincomb({"a": 2.0, "b": 3.0}, {"a": {"x": 1.0}, "b": {"x": 1.0, "y": 1.0}})
{'x': 5.0, 'y': 3.0}
"""

from ._algebra import NUMBER, add, as_tree, lincomb, map_leaves, mask, max_norm, number, scale
from ._json import from_json, to_json
from ._paths import (
    Difference,
    Path,
    Tree,
    TreeError,
    count,
    diff,
    from_paths,
    paths,
    prune,
    show_path,
    transpose,
)
from ._structure import StructureError, structure

__all__ = [
    "NUMBER",
    "Difference",
    "Path",
    "StructureError",
    "Tree",
    "TreeError",
    "add",
    "as_tree",
    "count",
    "diff",
    "from_json",
    "from_paths",
    "lincomb",
    "map_leaves",
    "mask",
    "max_norm",
    "number",
    "paths",
    "prune",
    "scale",
    "show_path",
    "structure",
    "to_json",
    "transpose",
]
