"""A target that moves with the parameters: a temporal difference without stop_gradient, read from the program.

`r + γ v(next)` is the target of `v(here)`. If a gradient flows through it, the values of the next states are pulled
towards those of the states before, and what is minimized is another loss. It is known by its form: the square (or Huber
function) of a difference of two outputs, one of which has a number of the batch added to it and reads other inputs.
"""

from typing import Any

from jax.extend import core

from lapwing import jaxprs

from ._jaxprs import place
from ._program import SHAPES, Program, among
from ._report import fail

_SAME = SHAPES - {"stop_gradient"}


def check_bootstrap(program: Program) -> None:
    """Raises if the difference of an output and a target made of one has a gradient on both sides."""
    moved = _moved(program)
    of_params = program.dependent("params")
    read_by = _inputs_read(program)
    for eqn in program.eqns:
        if eqn.primitive.name != "sub" or not all(among(atom, moved) for atom in eqn.invars):
            continue
        for value, target in (eqn.invars, eqn.invars[::-1]):
            parts = _target(program, target, of_params)
            if parts is None:
                continue
            reward, later = (read_by(atom) for atom in parts)
            new = later - read_by(value)
            if reward and new and not reward & (later | read_by(value)):
                fail(
                    "targets",
                    f"the target of a temporal difference has a gradient ({place(eqn)}): it is made of "
                    f"{_names(reward)} and of an output for {_names(new)}, and pulls that output towards what should "
                    "follow it",
                    "jax.lax.stop_gradient around the target: reward + discount * values of what comes next",
                    [place(eqn)],
                )


def _names(paths: set[str]) -> str:
    return " and ".join(sorted(paths))


def _target(program: Program, atom: Any, of_params: set[core.Var]) -> tuple[Any, Any] | None:
    """The two terms of a sum of something that is no output and a multiple of an output, which is less than it."""
    made = program.origin(atom, _SAME)
    if made is None or made.primitive.name != "add":
        return None
    mine = [among(each, of_params) for each in made.invars]
    if sum(mine) != 1:
        return None
    output, other = made.invars[mine.index(True)], made.invars[mine.index(False)]
    scaled = program.origin(output, _SAME)
    return (other, output) if scaled is not None and scaled.primitive.name == "mul" else None


def _moved(program: Program) -> set[core.Var]:
    """What has a gradient with respect to the parameters."""
    found = set(program.inputs["params"].values())
    for eqn in program.eqns:
        if eqn.primitive.name != "stop_gradient" and not found.isdisjoint(jaxprs.variables(eqn.invars)):
            found.update(eqn.outvars)
    return found


def _inputs_read(program: Program) -> Any:
    """For a value, the arrays of the batch that it is made of."""
    reached = {path: jaxprs.depends_on(program.eqns, [var]) for path, var in program.inputs["batch"].items()}
    return lambda atom: {path for path, values in reached.items() if among(atom, values)}
