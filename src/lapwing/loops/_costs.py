"""The cost model: which moves are worth it. Each question is answered by a `Decision` with its reason.

Moving a product out of a loop trades memory traffic: the loop then writes and reads a stack of operands or results,
where before it read and wrote the weight or its gradient in every step. `"always"` makes every move that is possible.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from jax.extend import core

from lapwing import jaxprs
from lapwing.core import format_bytes
from lapwing.loops._decisions import Decision, Move

Rewrite = Literal["auto", "always", "never"]

# Stacks above this share of what a typical machine has free would turn a loop that fits into one that does not.
LARGEST_STACK = {"cpu": 1 << 29, "gpu": 1 << 32}
# On a CPU, adding to a small weight in every step stays in the cache, and stacking a large batch does not.
SMALL_WEIGHT = 16
SMALL_STACK = 1 << 20
FEW_STEPS = 4
# Measured on an H200: unrolling by 4 is 1.2 to 1.7 times faster than not at all, and by 8 hardly faster than by 4.
UNROLL_ON_GPU = 4
FEW_EQUATIONS = 150


@dataclasses.dataclass(frozen=True)
class Costs:
    """What is worth doing, for one value of `rewrite` on one platform."""

    rewrite: Rewrite
    platform: str
    differentiated: bool = True
    """Whether the loop runs for its gradient, or for its value alone."""

    def hoists(self, eqn: core.JaxprEqn, length: int) -> Decision:
        """Whether a product of xs and constants, or one that only outputs depend on, leaves the loop."""
        stack = length * sum(map(jaxprs.nbytes, eqn.outvars))
        against = None
        if not self.differentiated and self.platform == "cpu":
            against = "without a gradient it would only take more memory"
        elif stack > self._largest:
            against = f"its results for all steps would take {format_bytes(stack)}"
        return self._decide("hoist", [eqn], against)

    def merges(self, eqns: Sequence[core.JaxprEqn], length: int) -> Decision:
        """Whether sibling products become one, for which their weights are concatenated once."""
        against = None
        if length < FEW_STEPS:
            against = f"not merged: concatenating the weights does not pay in {length} steps"
        elif self.platform == "cpu":
            against = (
                "not merged: on a CPU, splitting the result of one wide product costs more than it saves"
            )
        return self._decide("merge", eqns, against)

    def defers(self, eqn: core.JaxprEqn, length: int) -> Decision:
        """Whether a weight's gradient is computed after the loop, from stacked operands, or summed in every step."""
        carried = min(map(jaxprs.nbytes, jaxprs.variables(eqn.invars)))
        stacked = sum(map(jaxprs.nbytes, eqn.outvars))
        against = None
        if length * stacked > self._largest:
            against = f"the cotangents of all steps would take {format_bytes(length * stacked)}"
        elif self.platform == "cpu" and stacked > SMALL_WEIGHT * carried:
            against = (
                f"it is small ({format_bytes(carried)}) next to a step's values ({format_bytes(stacked)})"
            )
        return self._decide("defer", [eqn], against)

    def stacks(self, var: core.Var, length: int) -> bool:
        """Whether a bias or gain on its own is summed after the loop, over a stack made only for it."""
        return (
            self.rewrite == "always" or self.platform != "cpu" or length * jaxprs.nbytes(var) <= SMALL_STACK
        )

    def unrolls(self, loop: jaxprs.Loop) -> int:
        """Steps per iteration. On a GPU each iteration costs a fixed time, which matters for small steps."""
        small = len(loop.eqns) <= FEW_EQUATIONS and not any(jaxprs.inner_jaxprs(eqn) for eqn in loop.eqns)
        if self.platform != "gpu" or loop.unroll != 1 or not small:
            return loop.unroll
        return min(UNROLL_ON_GPU, loop.length)

    def _decide(self, move: Move, eqns: Sequence[core.JaxprEqn], against: str | None) -> Decision:
        return Decision(move, tuple(eqns), against is None or self.rewrite == "always", against)

    @property
    def _largest(self) -> int:
        return LARGEST_STACK.get(self.platform, LARGEST_STACK["gpu"])
