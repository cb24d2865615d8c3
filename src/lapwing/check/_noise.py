"""A regression to random numbers that the prediction knows nothing of: nothing can be learned from it.

In diffusion, the noise that is added to an example is what the model predicts. Drawn a second time, the goal is another
noise, and the best prediction is zero. The program shows which draws a prediction and its goal are made of.
"""

from jax.extend import core

from lapwing import jaxprs

from ._jaxprs import place
from ._keys import DRAWS
from ._program import SHAPES, Program, among
from ._report import fail
from ._signs import is_square


def check_noise(program: Program) -> None:
    """Raises if the square of a difference of outputs and noise is minimized, and the outputs depend on no part of that
    noise. Of a loss that takes a key."""
    of_params, of_batch = program.dependent("params"), program.dependent("batch")
    for eqn in program.eqns:
        if not is_square(eqn) and eqn.primitive.name != "abs":
            continue
        difference = program.origin(eqn.invars[0])
        if difference is None or difference.primitive.name != "sub":
            continue
        mine = [among(atom, of_params) for atom in difference.invars]
        if sum(mine) != 1:
            continue
        output, goal = difference.invars[mine.index(True)], difference.invars[mine.index(False)]
        draws = _draws(program, goal)
        is_spread = jaxprs.size(program.source(goal)) != jaxprs.size(eqn.outvars[0])
        if not draws or among(goal, of_batch) or is_spread or draws & _draws(program, output):
            continue
        if _draws(program, output) and not _is_sorted(program, output):
            fail(
                "labels",
                f"the outputs are compared with random numbers ({place(difference)}) that they do not depend on: they "
                "have other noise in their inputs, and the best that can be learned is the mean of that noise",
                "the noise, which should be drawn once: what is added to the examples is what is predicted",
                [place(difference)],
            )


def _draws(program: Program, atom: object) -> set[int]:
    behind = jaxprs.needed(program.eqns, [atom]) if isinstance(atom, core.Var) else []  # pyright: ignore
    return {id(eqn) for eqn in behind if eqn.primitive.name in DRAWS}


def _is_sorted(program: Program, atom: object) -> bool:
    """Whether distributions are compared, and not pairs."""
    return any(eqn.primitive.name == "sort" for eqn in program.ancestors(atom, SHAPES | {"slice", "gather"}))
