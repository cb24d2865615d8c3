"""When is a rewrite worth it? Each question is answered with the reason to leave things as they are, or None.

Moving a product out of a loop trades memory traffic: the loop then writes and reads a stack of operands or results,
where before it re-read and re-wrote the weight or its gradient in every step. `"always"` skips these questions.
"""

import dataclasses
import math
from typing import Literal

from jax.extend import core
from jax.extend.core import primitives as p

from lapwing.loops import _jaxprs as jaxprs

Rewrite = Literal["auto", "always", "never"]

# Stacks above this share of what a typical machine has free would turn a loop that fits into one that does not.
LARGEST_STACK = {"cpu": 2 << 30, "gpu": 8 << 30}


@dataclasses.dataclass(frozen=True)
class Costs:
    rewrite: Rewrite
    platform: str

    def against_moving(self, eqn: core.JaxprEqn, length: int) -> str | None:
        """A product of xs and constants, or one that only outputs depend on."""
        stack = length * sum(map(jaxprs.nbytes, eqn.outvars))
        if self.rewrite == "always" or stack <= self._largest:
            return None
        return f"its results for all steps would take {readable(stack)}"

    def against_merging(self, eqns: list[core.JaxprEqn], length: int) -> str | None:
        """Sibling products with constant weights, which must be copied side by side once."""
        if self.rewrite == "always" or length >= 4:
            return None
        return f"copying the weights does not pay in {length} steps"

    def against_deferring(self, eqn: core.JaxprEqn, length: int) -> str | None:
        """A weight's gradient: in the loop it is added to in every step; outside, its operands are stacked."""
        if self.rewrite == "always":
            return None
        carried = sum(map(jaxprs.nbytes, _weight_like(eqn)))
        stacked = sum(map(jaxprs.nbytes, eqn.outvars))
        if length * stacked > self._largest:
            return f"the cotangents of all steps would take {readable(length * stacked)}"
        if self.platform == "cpu" and stacked > SMALL_WEIGHT * carried:
            return f"the weight ({readable(carried)}) is small next to a step's values ({readable(stacked)})"
        return None

    def against_stacking(self, var: core.Var, length: int) -> str | None:
        """A bias or gain on its own: outside the loop one reduction over a stack made only for it."""
        if self.rewrite == "always" or self.platform != "cpu":
            return None
        if length * jaxprs.nbytes(var) <= SMALL_STACK:
            return None
        return f"a stack of {readable(length * jaxprs.nbytes(var))} for a sum alone costs more than adding up"

    @property
    def _largest(self) -> int:
        return LARGEST_STACK.get(self.platform, LARGEST_STACK["gpu"])


# On a CPU, adding to a small weight in every step stays in the cache, and stacking a large batch does not.
SMALL_WEIGHT = 16
SMALL_STACK = 1 << 20


def _weight_like(eqn: core.JaxprEqn) -> list[core.Var]:
    """The smaller operand: of a step value and a weight's tangent, usually the weight."""
    return sorted(jaxprs.variables(eqn.invars), key=jaxprs.nbytes)[:1]


def readable(amount: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.3g} {unit}"
        amount /= 1000
    raise AssertionError


def flops(eqn: core.JaxprEqn) -> int:
    """Multiplications and additions of one product."""
    out = jaxprs.size(eqn.outvars[0])
    if eqn.primitive is p.dot_general_p:
        (contracted, _), _ = eqn.params["dimension_numbers"]
        shape = eqn.invars[0].aval.shape
        return 2 * out * math.prod(shape[axis] for axis in contracted)
    if eqn.primitive is p.conv_general_dilated_p:
        kernel = eqn.invars[1].aval.shape
        out_features = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
        return 2 * out * math.prod(kernel) // max(out_features, 1)
    return 0
