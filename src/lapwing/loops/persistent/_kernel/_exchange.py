"""What a block gives to the others, and waits for from them."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lapwing.loops.persistent import _evaluate as evaluate
from lapwing.loops.persistent._evaluate import Parts, parts_from
from lapwing.loops.persistent._kernel import _mosaic as mosaic
from lapwing.loops.persistent._kernel._memory import kind_of, published
from lapwing.loops.persistent._kernel._place import Place
from lapwing.loops.persistent._stages import Stage

_REDUCE = {"reduce_sum": jnp.sum, "reduce_max": jnp.max, "reduce_min": jnp.min}
_NOTHING = {"reduce_sum": 0.0, "reduce_max": -np.inf, "reduce_min": np.inf}


class Exchange:
    """The exchanges of a block with those of its team."""

    def __init__(self, place: Place) -> None:
        self.place, self.sizes, self.memory = place, place.sizes, place.memory
        self.stages, self.shares = place.stages, place.shares

    def publish(self, stage: Stage, exchange: int, env: Any, real: Any, t: Any) -> None:
        """Give the others what they need of this block's units."""
        slot = self.place.slot(t)
        for product in stage.products:
            number = self.place.products.index(product)
            value = evaluate.read(self.stages, env, product.value)
            order = [axis for axis in range(value.ndim) if axis not in product.contracted]
            for part, tile in enumerate(value.transpose(*order, *product.contracted).ravel()):
                where = self._where(number, slot, part)
                kept = self._masked(tile, real, 0.0).astype(kind_of(product.value))
                where[...] = mosaic.as_multiplied(kept)
        for eqn in stage.sums:
            self._publish_sums(eqn, env, real, slot)
        mosaic.commit()
        if self.shares.near:
            self._send(stage, exchange, slot)
        else:
            mosaic.count(self.place.counter)

    def _where(self, number: int, slot: Any, part: int) -> Any:
        if self.shares.near:
            return self.memory["own"][number].at[slot, part]
        first = part * self.shares.width + self.place.block * self.shares.units
        return self.place.exchanged[number].at[
            slot, self.place.group, :, mosaic.span(first, self.shares.units)
        ]

    def _masked(self, tile: Any, real: Any, nothing: float) -> Any:
        if real is None:
            return jnp.broadcast_to(tile, self.place.tile)
        return jnp.where(real > 0, tile, nothing)

    def _publish_sums(self, eqn: Any, env: Any, real: Any, slot: Any) -> None:
        """A block's own sums, of each row one number."""
        value = evaluate.read(self.stages, env, eqn.invars[0])
        over, name = eqn.params["axes"], eqn.primitive.name
        kept = [axis for axis in range(value.ndim) if axis not in over]
        columns = value.transpose(*kept, *over).reshape(self.sizes.parts(eqn.outvars[0]), -1)
        for number, column in enumerate(columns):
            tile = functools.reduce(evaluate.COMBINE[name], column)
            tile = mosaic.laid_out(self._masked(tile, real, _NOTHING[name]), self.place.layout)
            rows = _REDUCE[name](tile, axis=1)
            where = self.place.sums.index((eqn, number))
            if self.shares.near:
                own = self.memory["own_sums"].at[slot, where]
            else:
                own = self.place.summed.at[slot, self.place.group, where, :, self.place.block]
            own[...] = rows

    def _send(self, stage: Stage, exchange: int, slot: Any) -> None:
        """Write what was published into the shared memory of each block of the cluster."""
        sizes, flags, everyone = self.sizes, self.memory["flags"], range(self.sizes.team)
        flag = sizes.slots * exchange + slot
        jobs = []
        for product in stage.products:
            number = self.place.products.index(product)
            tile = self.shares.rows * self.shares.units * sizes.itemsize(product.value)
            nbytes, kept = sizes.contracted(product) * tile, mosaic.kept_as(published(sizes, product))
            own, there = self.memory["own"][number], self.memory["all"][number]
            jobs.append((own.at[slot], there.at[slot, self.place.peer], nbytes, kept))
        if stage.sums:
            numbers = [self.place.sums.index((eqn, 0)) for eqn in stage.sums]
            count = sum(sizes.parts(eqn.outvars[0]) for eqn in stage.sums)
            which = mosaic.span(min(numbers), count)
            own, there = self.memory["own_sums"].at[slot, which], self.memory["all_sums"].at[slot]
            jobs.append((own, there.at[self.place.peer, which], count * self.place.tile[0] * 4, ()))
        mosaic.expect(flags, flag, sizes.team * sum(nbytes for _, _, nbytes, _ in jobs))
        for own, there, nbytes, kept in jobs:
            mosaic.send(own, there, flags, flag, everyone, nbytes, kept)

    def wait(self, exchange: int, t: Any) -> None:
        """Wait until all blocks of the team have published."""
        if self.shares.near:
            slots = jnp.int32(self.sizes.slots)
            parity = lax.rem(lax.div(t, slots), jnp.int32(2))
            mosaic.received(self.memory["flags"], slots * exchange + self.place.slot(t), parity)
        else:
            every = (t * self.stages.exchanges + exchange + 1) * self.sizes.team
            mosaic.counted(self.place.counter, every)

    def sums(self, stage: Stage, t: Any) -> dict[Any, Parts]:
        """The sums of all blocks, for each unit the same."""
        found = {}
        for eqn in stage.sums:
            out = eqn.outvars[0]
            rows = [self._sum_of_all(eqn, number, t) for number in range(self.sizes.parts(out))]
            tiles = [lax.broadcast_in_dim(each, self.place.tile, (0,)) for each in rows]
            tiles = [mosaic.laid_out(tile, self.place.layout) for tile in tiles]
            found[out] = parts_from(tiles, self.stages.parts(out))
        return found

    def _sum_of_all(self, eqn: Any, number: int, t: Any) -> Any:
        """A number for each row."""
        slot, where, name = self.place.slot(t), self.place.sums.index((eqn, number)), eqn.primitive.name
        if self.shares.near:
            every = [self.memory["all_sums"].at[slot, block, where] for block in range(self.sizes.team)]
            loaded = [mosaic.load(ref, self.place.layout.reduce(1)) for ref in every]
            return functools.reduce(evaluate.COMBINE[name], loaded)
        # The lanes of a warp share out the blocks.
        every = mosaic.load(self.place.summed.at[slot, self.place.group, where], self.place.layout)
        if (blocks := self.shares.in_group) < every.shape[1]:
            every = jnp.where(mosaic.columns(every.shape, self.place.layout) < blocks, every, _NOTHING[name])
        return _REDUCE[name](every, axis=1)
