"""What the first layers of a model are given, in training and in evaluation: numbers of the same size.

Inputs that are divided by 255 in the loss and not in the evaluation, a validation set that is not normalized, a
normalization in `prepare`: each program is correct, and the numbers that the weights meet are not the same. They are
read where a weight, or a loop that holds weights, is given something that depends on no parameter.
"""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from lapwing import jaxprs

from ._jaxprs import place
from ._program import Program, among
from ._report import fail

_PRODUCTS = ("dot_general", "conv_general_dilated", "scan")
_TIMES = 4.0
_FEWEST = 8


def check_seen(training: Program, trees: Any, evaluation: Program, others: Any, what: str) -> None:
    """Raises if a weight meets inputs of another size in the evaluation; `trees` and `others` are what the two programs
    are given."""
    ours, theirs = dict(_given(training)), dict(_given(evaluation))
    common = [key for key in ours if key in theirs]
    if not common:
        return
    here = training.values([ours[key][0] for key in common], *trees)
    there = evaluation.values([theirs[key][0] for key in common], *others)
    for key, one, two in zip(common, here, there, strict=True):
        sizes = [_size(np.asarray(each, np.float64)) for each in (one, two)]
        if (
            min(sizes) <= 0
            or not np.isfinite(sizes).all()
            or np.size(one) < _FEWEST
            or np.size(two) < _FEWEST
        ):
            continue
        times = sizes[1] / sizes[0]
        if not 1 / _TIMES < times < _TIMES:
            fail(
                "modes",
                f"{key[0]} is given numbers of size {sizes[0]:.3g} in training ({place(ours[key][1])}) and of size "
                f"{sizes[1]:.3g} in {what} ({place(theirs[key][1])}): they are not scaled in the same way",
                "the scaling of the inputs (a division by 255, a mean and a standard deviation), which must be the "
                "same for training and evaluation: do it in one function that both call, with the numbers of the "
                "training data",
                [key[0]],
            )


def _size(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _given(program: Program) -> Iterator[tuple[tuple[str, int], tuple[core.Var, core.JaxprEqn]]]:
    """For each weight that meets inputs: these, and where. Of several places the first, of a loop by their number."""
    names = {var: path for path, var in program.inputs["params"].items()}
    of_params = program.dependent("params")
    inputs = set().union(*(program.dependent(name) for name in program.inputs if name != "params"))
    seen = set()
    for eqn in program.eqns:
        if eqn.primitive.name not in _PRODUCTS:
            continue
        weights = [names[source] for atom in eqn.invars if among(source := program.source(atom), names)]
        if not weights:
            continue
        free = [atom for atom in jaxprs.variables(eqn.invars) if atom in inputs and atom not in of_params]
        for number, atom in enumerate(free):
            key = (weights[0], number)
            if jnp.issubdtype(jaxprs.dtype(atom), jnp.floating) and key not in seen:
                seen.add(key)
                yield key, (atom, eqn)
