"""The program of a block."""

import functools
from typing import Any

import jax.numpy as jnp
from jax import lax

from lapwing.jaxprs import dtype
from lapwing.loops.persistent import _evaluate as evaluate
from lapwing.loops.persistent._evaluate import Parts, parts_from
from lapwing.loops.persistent._kernel import _mosaic as mosaic
from lapwing.loops.persistent._kernel._exchange import Exchange
from lapwing.loops.persistent._kernel._memory import flags, kind_of
from lapwing.loops.persistent._kernel._place import Place
from lapwing.loops.persistent._kernel._products import Products


class Block:
    """What one block does."""

    def __init__(self, place: Place) -> None:
        self.place, self.sizes, self.memory = place, place.sizes, place.memory
        self.stages, self.shares, self.loop = place.stages, place.shares, place.loop
        self.exchange, self.products = Exchange(place), Products(place)

    def run(self) -> None:
        loop = self.loop
        there = self.memory["weights_there"]
        for weight, own in zip(self.place.weights, self.memory["weights"], strict=True):
            mosaic.fetch(weight.at[self.place.block], own, there)
        if self.shares.near or self.shares.split > 1:
            mosaic.set_up(self.memory["flags"], flags(self.sizes))
        consts = {var: self._from_memory(var, ref) for var, ref in self.place.consts.items()}
        real = (
            None
            if self.place.mask is None
            else mosaic.load(self._once(self.place.mask, 0), self.place.layout)
        )
        carry = [
            list(self._from_memory(var, ref).ravel())
            for var, ref in zip(loop.carry, self.place.init, strict=True)
        ]
        nothing = [
            mosaic.laid_out(jnp.zeros(self.place.tile, kind_of(var)), self.place.layout)
            for var in self.sizes.tiled(loop.ys)
            for _ in range(self.sizes.parts(var))
        ]
        xs = self._load_xs(jnp.int32(0))
        mosaic.arrived(there)

        def step(t: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            return self._step(t, consts, real, *state)

        carry, _, last = lax.fori_loop(0, loop.length, step, (carry, xs, nothing))
        self._store_ys(loop.length - 1, last)
        for ref, parts, var in zip(self.place.carry_out, carry, loop.carry_out, strict=True):
            self._to_memory(ref, parts, var)
        self._leave()

    def _leave(self) -> None:
        """Nobody leaves while another one waits for it, or writes to it; the last one sets the counter to zero."""
        if self.shares.near or self.shares.split > 1:
            mosaic.all_here()
        if self.shares.near:
            return
        mosaic.count(self.place.counter)

        @mosaic.when(lax.rem(self.place.block, jnp.int32(self.sizes.team)) == 0)
        def _() -> None:
            mosaic.reset(self.place.counter, (self.stages.exchanges * self.loop.length + 1) * self.sizes.team)

    def _step(
        self, t: Any, consts: Any, real: Any, carry: list[list[Any]], xs: list[list[Any]], last_ys: list[Any]
    ) -> tuple[list[list[Any]], list[list[Any]], list[Any]]:
        """One step; the outputs of the last one are still to be stored, the inputs of the next one to be loaded."""
        stages, loop = self.stages, self.loop
        tiled = self.sizes.tiled(stages.xs)
        env = {**consts, **self._scalar_xs(t)}
        env |= {var: self._parts(var, parts) for var, parts in zip(tiled, xs, strict=True)}
        env |= {
            var: parts_from(parts, stages.parts(var)) for var, parts in zip(loop.carry, carry, strict=True)
        }
        self.place.mark("start", t)
        later = functools.cache(lambda: self._meanwhile(t, last_ys))
        exchange = 0
        for stage in stages.stages:
            evaluate.run(stages, stage.eqns, env)
            if not (stage.products or stage.sums):
                continue
            self.exchange.publish(stage, exchange, env, real, t)
            self.place.mark("published", t)
            if self.shares.near or not stage.products:
                xs = later()
            self.exchange.wait(exchange, t)
            self.place.mark("all published", t)
            sums = functools.cache(functools.partial(self.exchange.sums, stage, t))
            for product in stage.products:
                pieces, read = self.products.pieces(product, t)
                xs, _ = later(), sums()  # The others have published, and what they did is on its way.
                self.place.mark("done meanwhile", t)
                env[product.out] = self.products.multiply(product, pieces, read, t)
            env |= sums()
            exchange += 1
        ys = [
            part.astype(kind_of(var)) for var in self.sizes.tiled(loop.ys) for part in self._settled(env, var)
        ]
        carry = [self._settled(env, var) for var in loop.carry_out]
        self.place.mark("end", t)
        return carry, xs, ys

    def _meanwhile(self, t: Any, last_ys: list[Any]) -> list[list[Any]]:
        """What can be done while the others finish: the last outputs leave, the next inputs come."""

        @mosaic.when(t > 0)
        def _() -> None:
            self._store_ys(t - 1, last_ys)

        return self._load_xs(jnp.minimum(t + 1, self.loop.length - 1))

    # Values ---------------------------------------------------------------------------------------------------

    def _settled(self, env: Any, var: Any) -> list[Any]:
        """The parts of a value in the layout of all tiles, to be carried."""
        parts = evaluate.read(self.stages, env, var).ravel()
        if self.stages.is_scalar(var):
            return [jnp.asarray(part) for part in parts]
        return [mosaic.laid_out(jnp.broadcast_to(part, self.place.tile), self.place.layout) for part in parts]

    def _once(self, ref: Any, part: int) -> Any:
        """A block's rows and units of a part, in global memory."""
        return ref.at[self.place.rows, part, self.place.units]

    def _from_memory(self, var: Any, ref: Any) -> Parts:
        """A value that is read once."""
        count = self.sizes.parts(var)
        if self.stages.is_scalar(var):
            values = [ref[part] for part in range(count)]
        else:
            values = [mosaic.load(self._once(ref, part), self.place.layout) for part in range(count)]
        return self._parts(var, values)

    def _parts(self, var: Any, values: list[Any]) -> Parts:
        if dtype(var) == jnp.bool_:
            values = [value != 0 for value in values]
        return parts_from(values, self.stages.parts(var))

    def _to_memory(self, ref: Any, parts: list[Any], var: Any) -> None:
        for number, part in enumerate(parts):
            value = part.astype(ref.dtype)
            if self.stages.is_scalar(var):
                ref[number] = value
            else:
                own = self._once(ref, number)
                own[...] = value

    # Inputs and outputs of a step -----------------------------------------------------------------------------

    def _at(self, t: Any) -> Any:
        return self.loop.length - 1 - t if self.loop.reverse else t

    def _load_xs(self, t: Any) -> list[list[Any]]:
        """The inputs of a step, as they are stored."""
        return [
            [
                mosaic.load(self._of_step(self.place.xs[var], t, part), self.place.layout)
                for part in range(self.sizes.parts(var))
            ]
            for var in self.sizes.tiled(self.stages.xs)
        ]

    def _of_step(self, ref: Any, t: Any, part: int) -> Any:
        """A block's rows and units of a part of what is stacked."""
        return ref.at[self._at(t), self.place.rows, part, self.place.units]

    def _scalar_xs(self, t: Any) -> dict[Any, Parts]:
        return {
            var: self._parts(
                var, [self.place.xs[var][self._at(t), part] for part in range(self.sizes.parts(var))]
            )
            for var in self.stages.xs
            if self.stages.is_scalar(var)
        }

    def _store_ys(self, t: Any, tiles: list[Any]) -> None:
        left = iter(tiles)
        for var, ref in zip(self.loop.ys, self.place.ys, strict=True):
            if not self.stages.is_scalar(var):
                for part in range(self.sizes.parts(var)):
                    own = self._of_step(ref, t, part)
                    own[...] = next(left)
