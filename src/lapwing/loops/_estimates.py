"""What moving a product out of a loop saves and costs on a CPU, in seconds a step.

Fitted to products of 1 to 256 rows with weights of 32 to 512 on one core of a server CPU. `lapwing bench loops` has the
loops that it was fitted on and those that it never saw. Machines differ in how fast they are, less in the proportions,
which are all that decides.
"""

from typing import NamedTuple

FLOPS = 130e9
"""A large product, per second."""
CACHED, UNCACHED = 80e9, 10e9
"""Bytes per second: adding to a weight's gradient that stays in the cache, and to one that does not."""
CACHE = 2 << 20
STACKED, ALLOCATED = 0.1e-9, 1e-9
"""Seconds a byte: writing and reading a stack, and one so large that each call gets new memory for it."""
READ = 0.05e-9
"""Seconds a byte: reading a stack."""
LARGE = 32 << 20
CALL = 0.3e-6
"""Seconds that a small product or sum costs in a step, however small it is."""
MARGIN = 1.2
"""A move must save this many times what it costs: when in doubt, the loop stays as it is."""


class Estimate(NamedTuple):
    """Seconds a step."""

    saves: float
    costs: float

    @property
    def pays(self) -> bool:
        return self.saves > MARGIN * self.costs

    def __str__(self) -> str:
        return f"saves {1e6 * self.saves:.2g} µs a step and costs {1e6 * self.costs:.2g}"


def hoisting(flops: int, rows: int, operand: int, stack: int, length: int) -> Estimate:
    """One product for all steps instead of one for the `rows` of each: few rows do not fill the machine."""
    full_speed = rows / (rows + 2)
    saves = flops / FLOPS * (1 / full_speed - 1) + CALL
    return Estimate(saves, _stacking(stack, length) + READ * operand)


def deferring(flops: int, rows: int, weight: int, operand: int, stack: int, length: int) -> Estimate:
    """A weight's gradient as one product over all steps, instead of adding that of each step's `rows` to it.

    The step's operand is kept anyway, but it is read once more when it is in no cache any longer.
    """
    full_speed = rows / (rows + 19)
    adding = 2 * weight / (CACHED if weight <= CACHE else UNCACHED)
    saves = flops / FLOPS * (1 / full_speed - 1) + adding + CALL
    return Estimate(saves, _stacking(stack, length) + READ * operand)


def _stacking(stack: int, length: int) -> float:
    return stack * (STACKED if length * stack <= LARGE else ALLOCATED)
