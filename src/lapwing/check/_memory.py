"""The memory of an optimizer: what its state keeps of gradients, an update must read.

An Adam that is created in each step, or whose state is initialized again, writes its moments and never reads them:
each step is then the sign of one gradient. The program of an update shows it.
"""

from typing import Any

import jax
import numpy as np
from jax.extend import core
from jaxtyping import PyTree

from lapwing import jaxprs
from lapwing.core import format_list

from ._partition import by_path
from ._program import read
from ._report import fail


def check_memory(made: Any, params: PyTree) -> None:
    """Raises if everything that the state keeps of gradients is written in an update and read in none."""
    try:
        state = jax.eval_shape(made.init, params)
        program = read(
            lambda gradient, state, value: made.update(gradient, state, value),
            gradient=params,
            state=state,
            value=params,
        )
    except Exception:
        return  # It needs more than a gradient and parameters.
    jaxpr = program.closed.jaxpr
    reads = jaxprs.dependencies(jaxpr)
    slopes, before = set(program.inputs["gradient"].values()), program.inputs["state"]
    after = dict(zip(before, jaxpr.outvars[len(jaxpr.outvars) - len(before) :], strict=True))
    written = dict(zip(before, reads[len(reads) - len(before) :], strict=True))
    shapes = {np.shape(leaf) for leaf in jax.tree.leaves(params)}
    leaves = by_path(state, "state")
    # What is a gradient as it came, or a number of all, may be there to be looked at.
    kept = [
        path
        for path, var in before.items()
        if np.shape(leaves[path]) in shapes - {()}
        and written[path] & slopes
        and isinstance(after[path], core.Var)
        and program.source(after[path]) not in slopes | {var}
    ]
    if kept and not any(before[path] in inputs for path in kept for inputs in reads):
        fail(
            "optimizer",
            f"the optimizer writes {format_list(kept, 3)} in each update and never reads it: its moments are those of "
            "one gradient, as if the state were reset in each step",
            "the state that the update is given: that of the last update, not optimizer.init(params) again",
            kept,
        )
