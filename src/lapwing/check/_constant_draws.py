"""Random numbers that are the same in every step: drawn with a constant key, and applied to each entry of a batch.

`jax.random.key(0)` inside a loss is the same noise, or the same dropout mask, for ever. A projection that is drawn once
and multiplied as a matrix is meant to be one.
"""

from jax.extend import core

from lapwing import jaxprs

from ._jaxprs import called_at, place
from ._keys import DRAWS
from ._program import SHAPES, Program, among
from ._report import fail

_APPLIES = frozenset(["add", "sub", "mul", "select_n"])
_LEAST = 16


def check_constant_draws(program: Program, what: str) -> None:
    """Raises if what a constant key draws is applied to a value of the batch, entry by entry."""
    inputs = set().union(*(program.dependent(name) for name in program.inputs))
    of_batch = program.dependent("batch")
    draws = [eqn for eqn in program.eqns if eqn.primitive.name in DRAWS and not _reads(eqn, inputs)]
    for draw in draws:
        noise = jaxprs.depends_on(program.eqns, draw.outvars) - inputs
        for eqn in program.eqns:
            size, name = jaxprs.size(eqn.outvars[0]), eqn.primitive.name
            if name not in _APPLIES or size < _LEAST or not any(among(atom, of_batch) for atom in eqn.invars):
                continue
            spread = (
                program.source(atom, SHAPES - {"transpose"}) for atom in eqn.invars if among(atom, noise)
            )
            if any(jaxprs.size(each) == size for each in spread) and called_at(draw) is not None:
                fail(
                    "keys",
                    f"{what} draws with a constant key at {place(draw)}: the same random numbers are applied at "
                    f"{place(eqn)} in every step",
                    "the key of that draw: it should be made of the key that the loss is given",
                    [place(draw)],
                )


def _reads(eqn: core.JaxprEqn, values: set[core.Var]) -> bool:
    return not values.isdisjoint(jaxprs.variables(eqn.invars))
