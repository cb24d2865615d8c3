"""Trees that should have the same leaves: parameters, their gradient, the optimizer state, a restored checkpoint."""

import sys
from typing import Any

from jaxtyping import PyTree

from lapwing import trees as _trees

from ._report import CheckError, CheckInputError, Report


def structure(**trees: PyTree) -> Report:
    """Every tree must have the leaves of the first: the same paths, shapes and dtypes.

    Functions, which an Equinox module may hold and its gradient does not, are left out. The message uses the names of
    the arguments. To check an optimizer state, compare it with a fresh one.

    >>> import numpy as np
    >>> params = {"w": np.zeros((2, 3)), "b": np.zeros(3)}
    >>> print(structure(params=params, gradient=params))
    structure: gradient has the leaves of params (2)
    >>> structure(params=params, gradient={"w": np.zeros((3, 2))})
    Traceback (most recent call last):
    lapwing.check._report.CheckError: gradient does not have the leaves of params: gradient lacks ['b'] (float64[3]);
    ['w'] is float64[3,2] in gradient and float64[2,3] in params. Look at ...
    """
    try:
        leaves = _trees.structure(**{name: _without_functions(tree) for name, tree in trees.items()})
    except _trees.StructureError as error:
        raise CheckError("structure", str(error), error.differences) from None
    except _trees.TreeError as error:
        raise CheckInputError(str(error)) from None
    first, *others = trees
    has = "has" if len(others) == 1 else "have"
    return Report(
        "structure",
        f"{' and '.join(others)} {has} the leaves of {first} ({leaves})",
        {"leaves": leaves},
    )


def _without_functions(tree: Any) -> Any:
    """The tree without leaves that are functions. A tree with functions in it has imported jax."""
    jax = sys.modules.get("jax")
    if jax is None or not any(map(callable, jax.tree.leaves(tree))):
        return tree
    return jax.tree.map(lambda leaf: None if callable(leaf) else leaf, tree)
