"""The cost model: which moves are worth it. Each question is answered by a `Decision` with its reason.

Moving a product out of a loop trades memory traffic: the loop then writes and reads a stack of operands or results,
where before it read and wrote the weight or its gradient in every step, and multiplied few rows at a time. On a CPU
both sides are estimated (`_estimates`); on a GPU, where each small product costs a launch, a move is made if its stack
fits. `"always"` makes every move that is possible.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal

import jax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing import jaxprs
from lapwing.core import format_bytes
from lapwing.loops._decisions import Decision, Move
from lapwing.loops._estimates import Estimate, deferring, hoisting

Rewrite = Literal["auto", "always", "never"]

# Stacks above this share of what a typical machine has free would turn a loop that fits into one that does not.
LARGEST_STACK = {"cpu": 1 << 29, "gpu": 1 << 32}
# What the cache of a CPU holds: a bias is added up in the loop where a stack made only for it would not fit.
SMALL, SMALL_STACK = 1 << 12, 1 << 20
LESS = 0.95
# A product over all steps with so small a result is slow, and a sum in every step is not.
FEW_NUMBERS = 64
FEW_STEPS = 4
# Measured on an H200: unrolling by 4 is 1.2 to 1.7 times faster than not at all, and by 8 hardly faster than by 4.
UNROLL_ON_GPU = 4
FEW_EQUATIONS = 150

_platform: contextvars.ContextVar[str | None] = contextvars.ContextVar("platform", default=None)


@contextlib.contextmanager
def platform_is(platform: str) -> Iterator[None]:
    """In here loops are rewritten as on this platform. The mark on the trace keeps jax from using them elsewhere."""
    token = _platform.set(platform)
    try:
        with set_xla_metadata(lapwing_platform=platform):
            yield
    finally:
        _platform.reset(token)


def present_platform() -> str:
    """Where loops run: to ask for it starts jax's backend, so not before a loop runs."""
    return _platform.get() or jax.default_backend()


@dataclasses.dataclass(frozen=True)
class Costs:
    """What is worth doing, for one value of `rewrite` on one platform."""

    rewrite: Rewrite
    platform: str
    differentiated: bool = True
    """Whether the loop runs for its gradient, or for its value alone."""
    room: int | None = None
    """The most bytes that a stack may take, where the platform's own limit is too large."""

    def for_value(self, loop: jaxprs.Loop) -> "Costs":
        """Those of the same loop without a gradient: a stack may take as much again as it reads and writes."""
        once = sum(map(jaxprs.nbytes, [*loop.consts, *loop.carry]))
        each = sum(map(jaxprs.nbytes, [*loop.xs, *loop.ys]))
        return dataclasses.replace(self, differentiated=False, room=once + loop.length * each)

    def hoists(
        self, eqn: core.JaxprEqn, length: int, weight: int | None, along: Sequence[core.JaxprEqn] = ()
    ) -> Decision:
        """Whether a product of xs and constants, or one that only outputs depend on, leaves the loop.

        `weight`: which operand is the same in all steps, if one is; `along`: what leaves the loop only with it.
        """
        stack = sum(jaxprs.nbytes(v) for each in (eqn, *along) for v in each.outvars)
        if length * stack > self._largest:
            return self._decide("hoist", [eqn], f"its results would take {format_bytes(length * stack)}")
        if self.platform != "cpu":
            return self._decide("hoist", [eqn], None)
        if not self.differentiated:
            return self._decide("hoist", [eqn], "without a gradient it would only take more memory")
        if eqn.primitive not in jaxprs.PRODUCTS or weight is None:
            return self._decide("hoist", [eqn], "no operand is the same in all steps, so nothing is shared")
        rows, operand = rows_of(eqn, 1 - weight), jaxprs.nbytes(eqn.invars[1 - weight])
        return self._weigh("hoist", eqn, hoisting(jaxprs.flops(eqn), rows, operand, stack, length))

    def takes_rows(self, eqn: core.JaxprEqn, *, copied: bool, feeds_product: bool) -> Decision:
        """Whether rows that a counter reads from a constant become an x of the loop."""
        against = "its rows would be copied, and no product that could leave the loop reads them"
        return self._decide("index", [eqn], against if copied and not feeds_product else None)

    def draws(self, loop: jaxprs.Loop) -> list[Decision]:
        """Random numbers of a step: they stay, whatever their keys depend on.

        Measured for dropout in a recurrent network on a CPU: masks of all steps at once take 1.3 to 1.7 times the
        memory, and the gradient is 0.8 to 0.9 times as fast but for steps of a few hundred numbers.
        """
        drawn = [eqn for eqn in loop.eqns if eqn.primitive is p.random_bits_p]
        against = "drawn for all steps at once, random numbers take more memory, and mostly more time"
        return [Decision("draw", tuple(drawn), False, against)] if drawn else []

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

    def defers(
        self, eqn: core.JaxprEqn, length: int, weight: core.Var, rows: int, operand: int, stack: int
    ) -> Decision:
        """Whether a weight's gradient is computed after the loop, from stacked operands, or summed in every step.

        `rows`: how many products each step adds up; `operand`: the bytes that a step multiplies, kept in any case;
        `stack`: the bytes that are kept only for this.
        """
        if length * stack > self._largest:
            return self._decide(
                "defer", [eqn], f"the cotangents of all steps would take {format_bytes(length * stack)}"
            )
        # Measured for convolutional LSTMs on a CPU: kernels' gradients after the loop make all 2 to 8 times faster.
        if self.platform != "cpu" or eqn.primitive is not p.dot_general_p:
            return self._decide("defer", [eqn], None)
        if jaxprs.size(weight) < FEW_NUMBERS:
            return self._decide("defer", [eqn], f"it has only {jaxprs.size(weight)} numbers")
        return self._weigh(
            "defer", eqn, deferring(jaxprs.flops(eqn), rows, jaxprs.nbytes(weight), operand, stack, length)
        )

    def stacks(self, var: core.Var, length: int) -> bool:
        """Whether a bias or gain on its own is summed after the loop, over a stack made only for it."""
        small = jaxprs.nbytes(var) <= SMALL and length * jaxprs.nbytes(var) <= SMALL_STACK
        return self.rewrite == "always" or self.platform != "cpu" or small

    def keeps_less(self, ours: int, theirs: int, length: int) -> bool:
        """Whether a loop keeps enough less than jax's own derivative would, in bytes a step, to be worth it.

        What stays in the cache is read faster than it is computed again.
        """
        if self.rewrite == "always" or self.platform != "cpu":
            return True
        return ours < LESS * theirs and length * theirs > SMALL_STACK

    def unrolls(self, loop: jaxprs.Loop) -> int:
        """Steps per iteration. On a GPU each iteration costs a fixed time, which matters for small steps."""
        small = len(loop.eqns) <= FEW_EQUATIONS and not any(jaxprs.inner_jaxprs(eqn) for eqn in loop.eqns)
        if self.platform != "gpu" or loop.unroll != 1 or not small:
            return loop.unroll
        return min(UNROLL_ON_GPU, loop.length)

    def _weigh(self, move: Move, eqn: core.JaxprEqn, estimate: Estimate) -> Decision:
        against = None if estimate.pays else f"it would not pay ({estimate})"
        decision = self._decide(move, [eqn], against)
        return dataclasses.replace(decision, estimate=str(estimate))

    def _decide(self, move: Move, eqns: Sequence[core.JaxprEqn], against: str | None) -> Decision:
        return Decision(move, tuple(eqns), against is None or self.rewrite == "always", against)

    @property
    def _largest(self) -> int:
        largest = LARGEST_STACK.get(self.platform, LARGEST_STACK["gpu"])
        return largest if self.room is None else min(largest, self.room)


def rows_of(eqn: core.JaxprEqn, side: int) -> int:
    """How many rows the operand on this side of a product has: its size without the axis that is summed over."""
    return max(jaxprs.size(eqn.invars[side]) // summed(eqn), 1)


def summed(eqn: core.JaxprEqn) -> int:
    """How many products are added up for each number in the result."""
    return max(jaxprs.flops(eqn) // (2 * max(jaxprs.size(eqn.outvars[0]), 1)), 1)
