"""The logarithm of a probability to which a small number is added: it hides the underflow, and the gradient is lost.

`log(softmax(x) + eps)` is finite where the probability has underflowed, and flat: an example whose class has a
probability far below eps has a large loss and no gradient. It does no harm where probabilities stay large, so those of
the batch decide, each by how much the loss depends on its logarithm.
"""

from typing import Any

import jax
import numpy as np
from jax.extend import core
from jaxtyping import PyTree

from lapwing import jaxprs

from ._jaxprs import place
from ._partition import is_array
from ._program import SHAPES, Program, among, probabilities
from ._report import fail

_LARGEST = 1e-2
_SHARE = 0.05
_PICKED = SHAPES | {"gather", "slice", "dynamic_slice"}


def check_floored(program: Program, params: PyTree, batch: PyTree) -> None:
    """Raises if much of a loss comes from probabilities that are smaller than what is added to them."""
    loss = program.closed.jaxpr.outvars[0]
    if jaxprs.shape(loss) != () or not all(map(is_array, jax.tree.leaves((params, batch)))):
        return
    made = probabilities(program)
    for eqn in program.eqns:
        floor = _floor(program, eqn.invars[0]) if eqn.primitive.name == "log" else None
        if floor is None or not among(source := program.source(floor[0], _PICKED), made):
            continue
        size, share = floor[1], _lost(program, eqn, floor[1], params, batch)
        if share > _SHARE:
            kind = "sigmoid" if made[source].primitive.name == "logistic" else "softmax"
            fail(
                "numbers",
                f"the logarithm at {place(eqn)} is taken of a {kind} with a floor of {size:.2g}, and {share:.0%} of "
                "what the loss reads there are probabilities below that: these have underflowed, and have no gradient",
                f"jax.nn.log_{kind} of the logits, which cannot underflow and needs no small number",
                [place(eqn)],
            )


def _floor(program: Program, atom: Any) -> tuple[Any, float] | None:
    """The value to which a small constant is added, or that is kept above one, and this constant."""
    eqn = program.origin(atom, _PICKED)
    if eqn is None or eqn.primitive.name not in ("add", "max", "clamp", "min"):
        return None
    if eqn.primitive.name == "clamp":
        numbers, values = [_number(program, eqn.invars[0])], [eqn.invars[1]]
    else:
        numbers = [_number(program, each) for each in eqn.invars]
        values = list(eqn.invars[::-1])
    for number, value in zip(numbers, values, strict=True):
        if eqn.primitive.name == "min" and number is not None and number > 1 - _LARGEST:
            return _floor(program, value)  # clip(p, eps, 1)
        if eqn.primitive.name != "min" and number is not None and 0 < number <= _LARGEST:
            return value, number
    return None


def _number(program: Program, atom: Any) -> float | None:
    source = program.source(atom)
    if not isinstance(source, core.Literal) or np.ndim(source.val):
        return None
    return float(source.val)


def _lost(program: Program, eqn: core.JaxprEqn, floor: float, params: PyTree, batch: PyTree) -> float:
    """The share of the slope of the loss along these logarithms that belongs to probabilities below the floor."""
    loss, logarithm = program.closed.jaxpr.outvars[0], eqn.outvars[0]
    run = program.evaluator([loss], [logarithm])
    (now,) = program.values([logarithm], params, batch)
    slope = jax.grad(lambda other: run(params, batch, others=[other])[0])(now)
    weight = np.abs(np.asarray(slope))
    below = np.asarray(now) < np.log(2 * floor)  # Half of it, or all, is what was added.
    return float(weight[below].sum() / weight.sum()) if weight.any() else 0.0
