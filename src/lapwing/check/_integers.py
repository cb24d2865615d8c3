"""Integers that cannot hold what is computed with them: bytes that wrap around, fractions that are cut off.

`image - 128` of uint8 is 255 where it should be −1, `x.astype(int)` of numbers below one is 0, `x // 255` too. The
programs of the data and of the loss are read, and what such an equation makes is computed.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from lapwing import jaxprs

from ._jaxprs import called_at, place
from ._partition import is_array
from ._program import SHAPES, Program, among
from ._report import fail

_ADDS = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
_ROUNDS = frozenset(["floor", "round", "ceil", "sign", "clamp", "max", "min"])
_LARGEST_BITS = 16


def check_integers(program: Program, trees: Sequence[Any], varying: str = "batch") -> None:
    """Raises if integers made of the argument `varying` lose what they should hold, and are made floating (or returned)
    after that."""
    if not all(map(is_array, jax.tree.leaves(list(trees)))):
        return
    made = program.dependent(varying)
    for eqn in program.eqns:
        if not any(among(atom, made) for atom in eqn.invars):
            continue
        if not jnp.issubdtype(jaxprs.dtype(eqn.outvars[0]), jnp.integer):
            continue
        name, dtype = eqn.primitive.name, np.dtype(jaxprs.dtype(eqn.outvars[0]))
        if name in _ADDS and 8 * dtype.itemsize <= _LARGEST_BITS:
            _check_wraps(program, eqn, trees)
        elif name == "div" and _is_used(program, eqn.outvars[0]):
            _check_divided(program, eqn, trees)
        elif name == "convert_element_type":
            _check_cut(program, eqn, trees)


def _check_wraps(program: Program, eqn: core.JaxprEqn, trees: Sequence[Any]) -> None:
    if not _is_written(eqn) or not _is_used(program, eqn.outvars[0]):
        return
    one, two, found = map(np.asarray, program.values([*eqn.invars, eqn.outvars[0]], *trees))
    right = _ADDS[eqn.primitive.name](one.astype(np.int64), two.astype(np.int64))
    wrong = right != found
    if wrong.any():
        dtype = found.dtype
        fail(
            "numbers",
            f"integers of type {dtype} wrap around at {place(eqn)}: {wrong.mean():.0%} of the results are wrong, such "
            f"as {found[wrong].flat[0]} where it should be {np.broadcast_to(right, wrong.shape)[wrong].flat[0]}",
            "the dtype: convert to floating point (or int32) before the arithmetic",
            [place(eqn)],
        )


def _check_divided(program: Program, eqn: core.JaxprEqn, trees: Sequence[Any]) -> None:
    after, before = map(np.asarray, program.values([eqn.outvars[0], eqn.invars[0]], *trees))
    if len(np.unique(after)) <= 2 < len(np.unique(before)) and len(np.unique(before)) > 2 * len(
        np.unique(after)
    ):
        fail(
            "numbers",
            f"integers are divided as integers at {place(eqn)}, and then made floating: {len(np.unique(before))} "
            f"different values become {len(np.unique(after))}",
            "the division: / instead of //, or a cast to floating point before it",
            [place(eqn)],
        )


def _check_cut(program: Program, eqn: core.JaxprEqn, trees: Sequence[Any]) -> None:
    """A cast that makes one integer of many numbers, without a floor or a round before it."""
    (source,) = eqn.invars
    if not jnp.issubdtype(jaxprs.dtype(source), jnp.floating) or not _is_written(eqn):
        return
    origin = program.origin(source)
    if origin is not None and origin.primitive.name in _ROUNDS:
        return
    after, before = map(np.asarray, program.values([eqn.outvars[0], source], *trees))
    if len(np.unique(after)) == 1 and len(np.unique(before)) > 2:
        fail(
            "numbers",
            f"numbers are made integers at {place(eqn)}, and all are {np.ravel(after)[0]} after that: "
            f"{len(np.unique(before))} different values from {before.min():.3g} to {before.max():.3g} are cut off",
            "the cast: these numbers should stay floating, or be scaled first",
            [place(eqn)],
        )


def _is_written(eqn: core.JaxprEqn) -> bool:
    """Whether the user wrote this arithmetic, and no generator of random numbers."""
    frames = getattr(eqn.source_info.traceback, "frames", ())
    return called_at(eqn) is not None and not any("/jax/_src/random" in each.file_name for each in frames)


def _is_used(program: Program, var: core.Var) -> bool:
    """Whether an integer becomes floating after it was reshaped, chosen or shifted."""
    waiting, seen = [var], set()
    while waiting:
        var = waiting.pop()
        if var in seen:
            continue
        seen.add(var)
        for eqn in program.readers.get(var, ()):
            name = eqn.primitive.name
            if name == "convert_element_type" and jnp.issubdtype(eqn.params["new_dtype"], jnp.floating):
                return True
            if name in SHAPES or name in ("select_n", "sub", "add", "mul", "max", "min", "concatenate"):
                waiting += eqn.outvars
    return False
