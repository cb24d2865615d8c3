"""A block's columns of a product, once all that it needs has been published."""

import functools
from typing import Any

import jax.numpy as jnp
from jax import lax

from lapwing.loops.persistent._axes import Product
from lapwing.loops.persistent._evaluate import Parts, parts_from
from lapwing.loops.persistent._kernel import _mosaic as mosaic
from lapwing.loops.persistent._kernel._memory import alike, largest
from lapwing.loops.persistent._kernel._place import Place
from lapwing.loops.persistent._sizes import PADDING


class Products:
    """The products of a block."""

    def __init__(self, place: Place) -> None:
        self.place, self.sizes, self.memory = place, place.sizes, place.memory
        self.stages, self.shares = place.stages, place.shares

    def pieces(self, product: Product, t: Any) -> tuple[list[Any], Any]:
        """What is to be multiplied, each when it is there, and what to do when one was read."""
        number = self.place.products.index(product)
        return (self._near_pieces if self.shares.near else self._fetched_pieces)(product, number, t)

    def multiply(self, product: Product, pieces: list[Any], read: Any, t: Any) -> Parts:
        """A block's columns of a product, once all has been published."""
        sizes, number = self.sizes, self.place.products.index(product)
        result = self.memory["results"][sizes.place(product)].at[mosaic.span(0, sizes.tensor_rows(product))]
        out = mosaic.multiply(sizes.tensor_rows(product), self.shares.rows, pieces, read)
        self.place.mark("multiplied", t)
        own = result.at[:, mosaic.span(0, self.shares.rows)]
        own[...] = out
        mosaic.commit()
        results = self._sums_of_peers(product, number, result, t) if self.shares.split > 1 else [result]
        tiles = []
        for part in range(sizes.parts(product.out)):
            where = mosaic.span(part * self.shares.units, self.shares.units)
            each = [each.at[where, mosaic.span(0, self.shares.rows)] for each in results]
            loaded = [mosaic.load(mosaic.transposed(ref), self.place.layout) for ref in each]
            tiles.append(functools.reduce(jnp.add, loaded))
        self.place.mark("passed on", t)
        return parts_from(tiles, self.stages.parts(product.out))

    def _near_pieces(self, product: Product, number: int, t: Any) -> tuple[list[Any], Any]:
        """Of each block of the cluster, what it has written here."""
        shares, slot = self.shares, self.place.slot(t)
        blocks, first = self.sizes.team, jnp.int32(0)
        if product.head and not self.stages.apart:
            blocks, first = shares.blocks, lax.div(self.place.block, jnp.int32(shares.blocks)) * shares.blocks

        def piece(part: int, block: int) -> Any:
            column = part * self.sizes.own_sum(product) + block * shares.units
            weight = self.memory["weights"][number].at[:, mosaic.span(column, shares.units)]
            return weight, self.memory["all"][number].at[slot, first + block, part]

        every = [
            functools.partial(piece, part, block)
            for part in range(self.sizes.contracted(product))
            for block in range(blocks)
        ]
        return every, None

    def _fetched_pieces(self, product: Product, number: int, t: Any) -> tuple[list[Any], Any]:
        """From global memory: as many at once as there is room for."""
        sizes, shares, slot, room = self.sizes, self.shares, self.place.slot(t), self.sizes.buffers(product)
        width, wide = sizes.own_sum(product), sizes.piece(product)
        which = [alike(sizes, other) for other in largest(sizes)].index(alike(sizes, product))
        buffers, there = self.memory["fetched"][which], self.memory["piece_there"]
        first = self.place.peer * width
        if product.head:
            first += lax.div(self.place.block, jnp.int32(shares.blocks)) * sizes.summed(product)
        places = [
            (part, offset) for part in range(sizes.contracted(product)) for offset in range(0, width, wide)
        ]

        def fetch(index: int) -> None:
            part, offset = places[index]
            columns = mosaic.span(part * shares.width + first + offset, wide)
            published = self.place.exchanged[number].at[slot, self.place.group, :, columns]
            mosaic.fetch(published, buffers.at[index % room], there.at[index % room])

        def piece(index: int) -> Any:
            mosaic.arrived(there.at[index % room])
            part, offset = places[index]
            column = mosaic.span(part * width + offset, wide)
            return self.memory["weights"][number].at[:, column], buffers.at[index % room]

        def read(index: int) -> None:
            if index + room < len(places):
                fetch(index + room)

        for index in range(room):
            fetch(index)
        every = [functools.partial(piece, index) for index in range(len(places))]
        return every, read if room < len(places) else None

    def _sums_of_peers(self, product: Product, number: int, result: Any, t: Any) -> list[Any]:
        """Each block of the cluster gets the sums for its own units from all of them."""
        sizes, split, flags = self.sizes, self.shares.split, self.memory["flags"]
        sums, columns = self.memory["sums"][sizes.place(product)], sizes.columns(product)
        flag = jnp.int32(sizes.slots * self.stages.exchanges + number)
        nbytes = columns * (self.shares.rows + PADDING) * 4
        own = mosaic.span(0, columns)
        mosaic.expect(flags, flag, (split - 1) * nbytes)
        for distance in range(1, split):
            peer = lax.rem(self.place.peer + distance, jnp.int32(split))
            theirs = result.at[mosaic.span(peer * columns, columns)]
            mosaic.send(theirs, sums.at[distance - 1, own], flags, flag, [peer], nbytes)
        mosaic.received(flags, flag, lax.rem(t, jnp.int32(2)))
        mine = result.at[mosaic.span(self.place.peer * columns, columns)]
        return [mine, *(sums.at[distance, own] for distance in range(split - 1))]
