"""Where a block is, and what is its own: its rows, its units, its arrays."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from lapwing.loops.persistent._kernel import _mosaic as mosaic
from lapwing.loops.persistent._sizes import Sizes

MARKS = ("start", "published", "all published", "done meanwhile", "multiplied", "passed on", "end")
"""What is timed of a step, of its last exchange where there are several."""


class Place:
    """A block, as its program sees it: its references to global and shared memory, and its number."""

    def __init__(
        self,
        sizes: Sizes,
        masks: int,
        timed: bool,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        memory: dict[str, Any],
    ) -> None:
        self.clock, outputs = (outputs[-1], outputs[:-1]) if timed else (None, outputs)
        self.sizes, self.memory = sizes, memory
        self.stages, self.shares, self.loop = sizes.stages, sizes.shares, sizes.stages.loop
        self.products = self.stages.products
        self.sums = [(eqn, number) for stage in self.stages.stages for eqn in stage.sums
                     for number in range(sizes.parts(eqn.outvars[0]))]  # fmt: skip
        given = iter(inputs)
        self.weights = [next(given) for _ in self.products]
        self.mask = next(given) if masks else None
        self.consts = {var: next(given) for var in self.stages.consts}
        self.init = [next(given) for _ in self.loop.carry]
        self.xs = {var: next(given) for var in self.stages.xs}
        made = iter(outputs)
        self.carry_out = [next(made) for _ in self.loop.carry_out]
        self.ys = [next(made) for _ in self.loop.ys]
        self.exchanged = [] if self.shares.near else [next(made) for _ in self.products]
        self.summed: Any = next(made, None)
        self.group, self.peer = lax.axis_index("groups"), lax.axis_index("peers")
        self.block = lax.axis_index("clusters") * sizes.cluster + self.peer
        self.rows = mosaic.span(self.group * self.shares.rows, self.shares.rows)
        self.units = mosaic.span(self.block * self.shares.units, self.shares.units)
        self.tile = (self.shares.rows, self.shares.units)
        self.layout = mosaic.layout(*self.tile)
        if not self.shares.near:
            teams = self.shares.groups * self.shares.in_group // sizes.team
            mine = self.group * (self.shares.in_group // sizes.team) + self._team()
            self.counter = mosaic.counters(teams).at[mine]

    def mark(self, name: str, t: Any) -> None:
        if self.clock is None:
            return

        @mosaic.when((self.block == 0) & (self.group == 0))
        def _() -> None:
            mosaic.note_clock(self.clock, t * len(MARKS) + MARKS.index(name))

    def _team(self) -> Any:
        """Which of its group's teams a block is in."""
        return lax.div(self.block, jnp.int32(self.sizes.team))

    def slot(self, t: Any) -> Any:
        """Where what is published in a step is put."""
        return lax.rem(t, jnp.int32(self.sizes.slots if self.shares.near else 2))
