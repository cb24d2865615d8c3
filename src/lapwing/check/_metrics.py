"""Metrics that are computed from the wrong numbers, read from the program of an evaluation or of a loss.

An accuracy that compares predictions [n, 1] with labels [n] compares each with all: it is the share of equal pairs, and
does not depend on which belong together. An evaluation of parameters that a function closes over never changes.
"""

import math

from lapwing import jaxprs

from ._jaxprs import place
from ._program import Program, among
from ._report import fail

_COMPARES = ("eq", "ne")
_LEAST = 2


def check_metrics(program: Program, what: str) -> None:
    """Raises if no output depends on the parameters, or predictions are compared with all targets."""
    of_params = program.dependent("params")
    # Averages of the parameters may be in the state.
    learned = of_params | program.dependent("state") if "state" in program.inputs else of_params
    if not any(among(out, learned) for out in program.closed.jaxpr.outvars):
        fail(
            "modes",
            f"{what} does not depend on the parameters: none of its results changes with them",
            "which parameters it uses: those that it is given, not those of the beginning or of another model",
        )
    of_batch = program.dependent("batch")
    for eqn in program.eqns:
        if eqn.primitive.name not in _COMPARES or len(eqn.invars) != 2:
            continue
        mine = [among(atom, of_params) for atom in eqn.invars]
        if sum(mine) != 1 or not all(among(atom, of_batch) for atom in eqn.invars):
            continue
        shape = jaxprs.shape(eqn.outvars[0])
        sources = [program.source(atom, {"broadcast_in_dim", "reshape"}) for atom in eqn.invars]
        sizes = [jaxprs.size(each) for each in sources]
        is_outer = len(shape) == 2 and sorted(sizes) == sorted(shape) and math.prod(sizes) == math.prod(shape)
        if is_outer and min(shape) >= _LEAST and all(len(jaxprs.shape(each)) <= 2 for each in sources):
            fail(
                "modes",
                f"{what} compares every prediction with every target ({place(eqn)}): [{shape[0]}, 1] with [{shape[1]}] "
                f"is [{shape[0]}, {shape[1]}]",
                "the shapes of predictions and targets, which should be equal, and the axis of the argmax, which "
                "should be that of the classes",
                [place(eqn)],
            )
