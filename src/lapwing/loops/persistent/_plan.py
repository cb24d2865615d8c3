"""Which blocks own which rows and units: the plans that fit on a GPU, the most promising first.

Weights must fit into the shared memory of all multiprocessors, and all blocks must run at once, for they wait for each
other: so there are never more of them than multiprocessors, nor more clusters than fit on its groups of
multiprocessors. What a step costs is a sum of what was measured apart: waiting for the others, fetching what they
published, multiplying it, passing the result through shared memory, and the elementwise work.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator

from lapwing.loops.persistent._axes import Product
from lapwing.loops.persistent._shares import Shares
from lapwing.loops.persistent._sizes import Sizes
from lapwing.loops.persistent._stages import Stages


@dataclasses.dataclass(frozen=True)
class Gpu:
    """What a plan must know of a GPU. The defaults are those of an H200."""

    multiprocessors: int = 132
    shared_memory: int = 227 * 1024

    def blocks(self, cluster: int) -> int:
        """How many run at once. A cluster is on one part of the GPU, where a few multiprocessors may be left over; how
        many is not the same on every chip. On an H200 120 blocks ran at once in clusters of 4 and of 8.
        """
        if cluster <= 2:
            return self.multiprocessors // cluster * cluster
        return self.multiprocessors * 7 // 8 // cluster * cluster


UNITS = (8, 16, 24, 32, 40, 48, 64, 80, 96, 128)
MOST_ROWS, MOST_COLUMNS, MOST_RESULTS, MOST_PIECES = 256, 256, 16384, 32
LARGEST_CLUSTER = 8
# The functions that take a thread long.
SLOW = frozenset(
    {
        "tanh", "logistic", "exp", "exp2", "expm1", "log", "log1p", "erf", "sin", "cos", "sqrt", "rsqrt", "div",
    }
)  # fmt: skip


def plans(stages: Stages, gpu: Gpu) -> list[Shares]:
    """All that fit, the most promising first."""
    found = [shares for shares in _candidates(stages, gpu) if _fits(Sizes(stages, shares), gpu)]
    return sorted(found, key=lambda shares: (seconds(stages, shares), dataclasses.astuple(shares)))


def _candidates(stages: Stages, gpu: Gpu) -> Iterator[Shares]:
    rows, each = math.prod(stages.rows), stages.units // stages.heads
    for units, split, groups in itertools.product(UNITS, (1, 2, 4, 8), range(1, 17)):
        of_group = -(-rows // groups)
        blocks = -(-each // (units * split)) * split
        padded = -(-of_group // 8) * 8
        if (groups > 1 and (groups - 1) * padded >= rows) or units > each:
            continue
        for buffers in (0, 2, 3, 4):
            yield Shares(groups, padded, stages.heads, blocks, units, split, buffers)
        if split == 1:
            yield Shares(groups, padded, stages.heads, blocks, units, near=True)


def _fits(sizes: Sizes, gpu: Gpu) -> bool:
    shares = sizes.shares
    return (
        shares.groups * shares.in_group <= gpu.blocks(sizes.cluster)
        and sizes.team >= 2
        and sizes.cluster <= LARGEST_CLUSTER
        and shares.rows <= MOST_ROWS
        and shares.rows % (4 * 32 // math.gcd(shares.units, 32)) == 0
        and all(_divides(sizes, product) for product in sizes.stages.products)
        and sizes.shared_bytes() <= gpu.shared_memory
    )


def _divides(sizes: Sizes, product: Product) -> bool:
    """Whether a product can be cut so: whole pieces of whole swizzled rows, and results that fit in registers."""
    return (
        sizes.own_sum(product) * sizes.shares.split == sizes.summed(product)
        and sizes.piece(product) * sizes.itemsize(product.value) % (64 if sizes.shares.near else 32) == 0
        and (sizes.shares.near or sizes.buffers(product) <= MOST_PIECES)
        and (sizes.shares.buffers == 0 or sizes.pieces(product) > sizes.shares.buffers)
        and sizes.tensor_rows(product) <= MOST_COLUMNS
        and sizes.tensor_rows(product) * sizes.shares.rows <= MOST_RESULTS
    )


# Microseconds, as measured on an H200, of an exchange, of a kilobyte written to another block, of fetching and of
# fetching a megabyte by all blocks together, of an instruction of the tensor cores, of passing a result on.
NEAR, NEAR_KILOBYTE, FAR, FETCH, FETCH_MEGABYTE = 0.26, 0.032, 1.0, 0.4, 0.056
INSTRUCTION, INSTRUCTION_ROW, RESULT, RESULT_NUMBER = 0.0125, 0.00013, 0.05, 1e-4
OVERLAP = 0.7  # Of multiplying what was fetched at once; the rest is done while it arrives.
SPLIT, SPLIT_KILOBYTE, SLOW_NUMBER, NUMBER = 0.1, 0.024, 0.01, 0.002
SUM, PIECE = 0.15, 0.5  # Of a sum over units; of each piece on its way at once, beyond four.


def seconds(stages: Stages, shares: Shares) -> float:
    """What a step takes, roughly."""
    sizes = Sizes(stages, shares)
    total = sum(_product(sizes, product) for product in stages.products)
    for stage in stages.stages:
        if stage.products or stage.sums:
            total += NEAR if shares.near else FAR + FETCH * bool(stage.products)
        total += SUM * sum(sizes.parts(eqn.outvars[0]) for eqn in stage.sums)
    numbers = max(1.0, shares.rows * shares.units / 128)
    for eqn in stages.loop.eqns:
        parts = max(map(sizes.parts, eqn.outvars))
        total += parts * numbers * (SLOW_NUMBER if eqn.primitive.name in SLOW else NUMBER)
    return total * 1e-6


def _product(sizes: Sizes, product: Product) -> float:
    shares, itemsize = sizes.shares, sizes.itemsize(product.value)
    own = shares.rows * sizes.contracted(product) * sizes.own_sum(product) * itemsize
    if shares.near:
        tile = shares.rows * shares.units * sizes.contracted(product) * itemsize
        moved = NEAR_KILOBYTE * tile * sizes.team / 1024
    else:
        moved = FETCH_MEGABYTE * own * shares.groups * shares.in_group / 1e6
        moved += FETCH * (sizes.pieces(product) / sizes.buffers(product) - 1)
        moved += PIECE * max(0, sizes.buffers(product) - 4)
    rows = sizes.tensor_rows(product)
    many = rows / 64 * sizes.contracted(product) * sizes.own_sum(product) * itemsize / 32
    result = RESULT + RESULT_NUMBER * rows * shares.rows
    if shares.split > 1:
        result += SPLIT + SPLIT_KILOBYTE * rows * shares.rows * 4 / 1024
    at_once = not shares.near and sizes.buffers(product) == sizes.pieces(product)
    each = (INSTRUCTION + INSTRUCTION_ROW * shares.rows) * (OVERLAP if at_once else 1)
    return moved + many * each + result
