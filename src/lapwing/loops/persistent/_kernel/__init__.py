"""The kernel.

Each block keeps its columns of the weights in shared memory and its part of the carry in registers, for all steps. A
value that a product needs is published: each block writes its units to global memory, adds one to a counter, waits
until all blocks of its team have, and fetches all units, which the tensor cores multiply as they arrive. While it
waits, the inputs of the next step are on their way, and the outputs of the last one on theirs. A team of at most eight
blocks is one cluster, and its blocks write what they publish into each other's shared memory, which is faster.

Columns of the weights are the rows of the tensor cores' product, of which there are at least 64, and rows of the batch
its columns, of which there may be 8: so little is computed for nothing. The result passes through shared memory, from
where each thread takes all parts of its own units.
"""

from typing import Any

import jax
import jax.numpy as jnp

from lapwing.jaxprs import Values
from lapwing.loops.persistent._axes import Product
from lapwing.loops.persistent._kernel import _mosaic as mosaic
from lapwing.loops.persistent._kernel._block import Block
from lapwing.loops.persistent._kernel._memory import outputs, shared_memory
from lapwing.loops.persistent._kernel._place import MARKS, Place
from lapwing.loops.persistent._shares import Shares, exists, share, untile
from lapwing.loops.persistent._sizes import Sizes
from lapwing.loops.persistent._stages import Stages

__all__ = ["MARKS", "run"]


def run(stages: Stages, shares: Shares, values: Values, timed: bool = False) -> list[Any]:
    """The last carry and the stacked outputs of the loop, flat, by one kernel.

    If it is `timed`, the clock of the first block at the `MARKS` of each step comes last.
    """
    loop, sizes = stages.loop, Sizes(stages, shares)
    given = share(stages, shares, values)
    real = exists(stages, shares)
    masks = [] if real is None else [jnp.broadcast_to(real, (shares.all_rows, 1, shares.width))]
    weights = [_filled(sizes, *pair) for pair in zip(stages.products, given.weights, strict=True)]
    inputs = [*weights, *masks, *map(_stored, [*given.consts, *given.init, *given.xs])]
    clock = [jax.ShapeDtypeStruct((loop.length, len(MARKS)), jnp.int32)] if timed else []
    kernel = mosaic.kernel(
        lambda *refs: Block(Place(sizes, len(masks), timed, *refs)).run(),
        grid=(shares.groups, shares.in_group // sizes.cluster),
        cluster=sizes.cluster,
        outputs=[*outputs(sizes), *clock],
        scratch=shared_memory(sizes),
        inputs=len(inputs),
        approximate=stages.floats <= {"bfloat16"},
    )
    out = kernel(*inputs)
    carry, ys = out[: loop.num_carry], out[loop.num_carry : loop.num_carry + len(loop.ys)]
    return [
        *(untile(stages, shares, var, value) for var, value in zip(loop.carry_out, carry, strict=True)),
        *(untile(stages, shares, var, value, 1) for var, value in zip(loop.ys, ys, strict=True)),
        *(out[-1:] if timed else []),
    ]


def _filled(sizes: Sizes, product: Product, weight: jax.Array) -> jax.Array:
    """(blocks, rows of the tensor cores, columns) of a weight."""
    weight = weight.reshape(weight.shape[0], -1, weight.shape[-2] * weight.shape[-1])
    weight = mosaic.as_multiplied(weight)
    return jnp.pad(weight, [(0, 0), (0, sizes.tensor_rows(product) - weight.shape[1]), (0, 0)])


def _stored(value: jax.Array) -> jax.Array:
    """Truth is a number in memory."""
    return value.astype(jnp.float32) if value.dtype == jnp.bool_ else value
