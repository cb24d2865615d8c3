"""How large everything in a block is."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lapwing import jaxprs
from lapwing.loops.persistent._axes import Product
from lapwing.loops.persistent._shares import Shares
from lapwing.loops.persistent._stages import Stages

TENSOR_ROWS = 64
"""Of one instruction of the tensor cores: a block's columns of a weight are filled up to a multiple."""
LARGEST_PIECE = 512
"""Bytes of a row of a published value that are fetched by one copy: the first are multiplied while others arrive."""
REDUCTION = 2048
"""Bytes of shared memory that the compiler takes for sums over units."""
PADDING = 2
"""Numbers between the rows of a result, so that threads that read a column use different banks of memory."""


@dataclasses.dataclass(frozen=True, eq=False)
class Sizes:
    """Numbers that follow from a loop and how it is shared out."""

    stages: Stages
    shares: Shares

    @property
    def team(self) -> int:
        """The blocks that wait for each other."""
        return self.shares.blocks if self.stages.apart else self.shares.in_group

    @property
    def cluster(self) -> int:
        return self.team if self.shares.near else self.shares.split

    def parts(self, atom: Any) -> int:
        return math.prod(self.stages.parts(atom))

    def itemsize(self, atom: Any) -> int:
        """In memory, where truth is a number."""
        name = str(jaxprs.dtype(atom))
        return 4 if name == "bool" else np.dtype(jaxprs.dtype(atom)).itemsize

    def contracted(self, product: Product) -> int:
        """The parts of a published value."""
        counts = self.stages.parts(product.value)
        return math.prod(counts[axis] for axis in product.contracted)

    def summed(self, product: Product) -> int:
        """The units of a part that a product sums over: those of a head, or all."""
        return self.shares.width // (self.shares.heads if product.head else 1)

    def own_sum(self, product: Product) -> int:
        """Those that a block multiplies."""
        return self.summed(product) // self.shares.split

    def columns(self, product: Product) -> int:
        """A block's columns of the result."""
        return self.parts(product.out) * self.shares.units

    def tensor_rows(self, product: Product) -> int:
        """The columns of a weight that a block keeps: for its peers too, and filled up."""
        return -(-self.columns(product) * self.shares.split // TENSOR_ROWS) * TENSOR_ROWS

    def piece(self, product: Product) -> int:
        """The units that are multiplied at a time."""
        if self.shares.near:
            return self.shares.units
        room = LARGEST_PIECE // (2 if self.shares.buffers else 1)
        whole, most = self.own_sum(product), room // self.itemsize(product.value)
        return next(whole // n for n in range(1, whole + 1) if whole % n == 0 and whole // n <= most)

    def pieces(self, product: Product) -> int:
        return self.contracted(product) * self.summed(product) // self.shares.split // self.piece(product)

    def buffers(self, product: Product) -> int:
        return min(self.shares.buffers or self.pieces(product), self.pieces(product))

    @property
    def slots(self) -> int:
        """Of what is published: a block may be one exchange ahead of another one."""
        return 2 if self.stages.exchanges == 1 else 1

    def place(self, product: Product) -> int:
        """Its number among the products of its stage: those of different stages share the memory of results, for in
        between all blocks wait for each other.
        """
        stage = next(stage for stage in self.stages.stages if product in stage.products)
        return stage.products.index(product)

    def result_rows(self) -> list[int]:
        """The most columns of a weight that a block keeps, at each place."""
        return self._largest(self.tensor_rows)

    def result_columns(self) -> list[int]:
        """The most columns of a result that a block gets, at each place."""
        return self._largest(self.columns)

    def _largest(self, size: Callable[[Product], int]) -> list[int]:
        found: dict[int, int] = {}
        for product in self.stages.products:
            place = self.place(product)
            found[place] = max(found.get(place, 0), size(product))
        return [found[place] for place in range(len(found))]

    def tiled(self, atoms: Any) -> list[Any]:
        return [atom for atom in atoms if not self.stages.is_scalar(atom)]

    def sums(self) -> int:
        """The numbers of a row that are summed over units in a step."""
        return sum(self.parts(eqn.outvars[0]) for stage in self.stages.stages for eqn in stage.sums)

    def shared_bytes(self) -> int:
        """The shared memory of a block."""
        rows, tile = self.shares.rows, self.shares.rows * self.shares.units
        padded, others = (rows + PADDING) * 4, self.shares.split - 1
        sizes = [2048]  # Barriers, and what is lost between arrays.
        sizes += [count * padded for count in self.result_rows()]
        sizes += [others * count * padded for count in self.result_columns() if others]
        fetched: dict[tuple[int, int], int] = {}
        for product in self.stages.products:
            size, count = self.itemsize(product.value), self.contracted(product)
            sizes.append(self.tensor_rows(product) * count * self.own_sum(product) * size)
            if self.shares.near:
                sizes += [self.slots * count * tile * size, self.slots * self.team * count * tile * size]
            else:
                whole = rows * self.buffers(product) * self.piece(product) * size
                key = (size, self.piece(product))
                fetched[key] = max(fetched.get(key, 0), whole)
        sizes += fetched.values()
        sizes += [REDUCTION] * bool(self.sums())
        if self.shares.near:
            sizes.append(self.slots * self.sums() * rows * 4 * (self.team + 1))
        return sum(-(-size // 1024) * 1024 for size in sizes)
