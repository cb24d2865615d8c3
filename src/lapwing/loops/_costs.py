"""When is a rewrite worth it? Each question has an answer, and for `explain` the reason to leave things as they are.

Moving a product out of a loop trades memory traffic: the loop then writes and reads a stack of operands or results,
where before it re-read and re-wrote the weight or its gradient in every step. `"always"` skips these questions.
"""

import dataclasses
import math
from typing import Literal

from jax.extend import core
from jax.extend.core import primitives as p

from lapwing.loops import _jaxprs as jaxprs
from lapwing.loops._loop import Loop
from lapwing.loops._notes import Role, note_left, note_merged

Rewrite = Literal["auto", "always", "never"]

# Stacks above this share of what a typical machine has free would turn a loop that fits into one that does not.
LARGEST_STACK = {"cpu": 1 << 29, "gpu": 1 << 32}


@dataclasses.dataclass(frozen=True)
class Costs:
    rewrite: Rewrite
    platform: str

    def moves(self, eqn: core.JaxprEqn, length: int) -> bool:
        """Whether a product of xs and constants, or one that only outputs depend on, leaves the loop."""
        stack = length * sum(map(jaxprs.nbytes, eqn.outvars))
        if stack > self._largest:
            return self._leave(eqn, "value", f"its results for all steps would take {readable(stack)}")
        return True

    def merges(self, eqns: list[core.JaxprEqn], length: int) -> bool:
        """Whether sibling products become one; their weights must be copied side by side once."""
        against = None
        if length < FEW_STEPS:
            against = f"copying the weights side by side does not pay in {length} steps"
        elif self.platform == "cpu":
            against = "on a CPU, taking the results of one wide product apart costs more than it saves"
        if against and self.rewrite != "always":
            for eqn in eqns:
                note_left(eqn, "value", f"not merged: {against}")
            return False
        note_merged(eqns)
        return True

    def defers(self, eqn: core.JaxprEqn, length: int) -> bool:
        """Whether a weight's gradient is made after the loop, from stacked operands, or added to in every step."""
        carried = min(map(jaxprs.nbytes, jaxprs.variables(eqn.invars)))
        stacked = sum(map(jaxprs.nbytes, eqn.outvars))
        against = None
        if length * stacked > self._largest:
            against = f"the cotangents of all steps would take {readable(length * stacked)}"
        elif self.platform == "cpu" and stacked > SMALL_WEIGHT * carried:
            against = f"it is small ({readable(carried)}) next to a step's values ({readable(stacked)})"
        return against is None or self._leave(eqn, "gradient of the weight", against)

    def stacks(self, var: core.Var, length: int) -> bool:
        """Whether a bias or gain on its own is summed after the loop, over a stack made only for it."""
        return (
            self.rewrite == "always" or self.platform != "cpu" or length * jaxprs.nbytes(var) <= SMALL_STACK
        )

    def unrolling(self, loop: Loop) -> int:
        """How many steps run per turn of the loop. On a GPU each turn costs a fixed time, which small steps feel."""
        small = len(loop.eqns) <= FEW_EQUATIONS and not any(jaxprs.inner_jaxprs(eqn) for eqn in loop.eqns)
        if self.platform != "gpu" or loop.unroll != 1 or not small:
            return loop.unroll
        return min(UNROLLED_ON_GPU, loop.length)

    def _leave(self, eqn: core.JaxprEqn, role: Role, why: str) -> bool:
        """Note why something was left in the loop, unless everything is to be moved."""
        if self.rewrite == "always":
            return True
        note_left(eqn, role, why)
        return False

    @property
    def _largest(self) -> int:
        return LARGEST_STACK.get(self.platform, LARGEST_STACK["gpu"])


# On a CPU, adding to a small weight in every step stays in the cache, and stacking a large batch does not.
SMALL_WEIGHT = 16
SMALL_STACK = 1 << 20
FEW_STEPS = 4
# Measured on an H200: 4 steps per turn are 1.2 to 1.7 times faster than 1, and 8 hardly faster than 4.
UNROLLED_ON_GPU = 4
FEW_EQUATIONS = 150


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
        shape = jaxprs.shape(eqn.invars[0])
        return 2 * out * math.prod(shape[axis] for axis in contracted)
    if eqn.primitive is p.conv_general_dilated_p:
        kernel = jaxprs.shape(eqn.invars[1])
        out_features = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
        return 2 * out * math.prod(kernel) // max(out_features, 1)
    return 0
