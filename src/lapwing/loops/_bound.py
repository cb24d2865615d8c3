"""What passes work on: a loop bound to the values it runs on, and what a pass returns."""

import dataclasses
from collections.abc import Callable
from typing import Any

from lapwing.jaxprs import Loop, Values
from lapwing.loops._costs import Costs
from lapwing.loops._decisions import Decision


@dataclasses.dataclass(frozen=True, eq=False)
class BoundLoop:
    """A loop with the values of its constants, its initial carry and its xs."""

    loop: Loop
    consts: Values
    init: Values
    xs: Values

    @property
    def inputs(self) -> list[Any]:
        return [*self.consts, *self.init, *self.xs]

    def run(self) -> list[Any]:
        """The last carry and the stacked outputs, flat, by `jax.lax.scan`."""
        return self.loop.run(self.consts, self.init, self.xs)


@dataclasses.dataclass(frozen=True, eq=False)
class Rewritten:
    """A rewritten loop, how to get the results of the original from its results, and what was decided."""

    bound: BoundLoop
    undo: Callable[[list[Any]], list[Any]] = lambda out: out
    decisions: tuple[Decision, ...] = ()


Pass = Callable[[BoundLoop, Costs], Rewritten]
