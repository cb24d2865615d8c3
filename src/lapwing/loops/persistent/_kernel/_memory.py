"""The arrays of a kernel, in global and in a block's shared memory."""

from typing import Any

import jax
import jax.numpy as jnp

from lapwing.jaxprs import dtype
from lapwing.loops.persistent._axes import Product
from lapwing.loops.persistent._kernel import _mosaic as mosaic
from lapwing.loops.persistent._sizes import PADDING, Sizes


def kind_of(atom: Any) -> Any:
    return jnp.dtype(jnp.float32) if dtype(atom) == jnp.bool_ else jnp.dtype(dtype(atom))


def outputs(sizes: Sizes) -> list[jax.ShapeDtypeStruct]:
    """In global memory: the carry, the outputs, and what is published."""
    stages, shares = sizes.stages, sizes.shares

    def array(atom: Any, *rows: int) -> jax.ShapeDtypeStruct:
        whole = (sizes.parts(atom),) if stages.is_scalar(atom) else (*rows, sizes.parts(atom), shares.width)
        return jax.ShapeDtypeStruct(whole, kind_of(atom))

    loop = stages.loop
    carry = [array(var, shares.all_rows) for var in loop.carry_out]
    ys = [array(var, loop.length, shares.all_rows) for var in loop.ys]
    if shares.near:
        return [*carry, *ys]
    exchanged = [
        jax.ShapeDtypeStruct(
            (2, shares.groups, shares.rows, sizes.contracted(product) * shares.width), kind_of(product.value)
        )
        for product in stages.products
    ]
    wide = mosaic.lanes(shares.units)
    columns = -(-shares.in_group // wide) * wide
    sums = (2, shares.groups, sizes.sums(), shares.rows, columns)
    return [*carry, *ys, *exchanged, *([jax.ShapeDtypeStruct(sums, jnp.float32)] if sizes.sums() else [])]


def shared_memory(sizes: Sizes) -> dict[str, Any]:
    """A block's shared memory."""
    stages, shares = sizes.stages, sizes.shares
    products = stages.products
    memory = {
        "weights": [
            mosaic.operand(
                (sizes.tensor_rows(product), sizes.contracted(product) * sizes.own_sum(product)),
                kind_of(product.value),
                sizes.piece(product),
            )
            for product in products
        ],
        "results": [
            mosaic.shared((count, shares.rows + PADDING), jnp.float32) for count in sizes.result_rows()
        ],
        "weights_there": mosaic.arrivals(len(products)),
        "flags": mosaic.flags(flags(sizes)),
    }
    if shares.near:
        memory["own"] = [published(sizes, product) for product in products]
        memory["all"] = [published(sizes, product, sizes.team) for product in products]
        count = max(sizes.sums(), 1)
        memory["own_sums"] = mosaic.shared((sizes.slots, count, shares.rows), jnp.float32)
        memory["all_sums"] = mosaic.shared((sizes.slots, sizes.team, count, shares.rows), jnp.float32)
        return memory
    memory["fetched"] = [
        mosaic.operand(
            (sizes.buffers(product), shares.rows, sizes.piece(product)),
            kind_of(product.value),
            sizes.piece(product),
        )
        for product in largest(sizes)
    ]
    memory["piece_there"] = mosaic.arrivals(1, max(map(sizes.buffers, products)))
    if shares.split > 1:
        memory["sums"] = [
            mosaic.shared((shares.split - 1, count, shares.rows + PADDING), jnp.float32)
            for count in sizes.result_columns()
        ]
    return memory


def flags(sizes: Sizes) -> int:
    """Barriers between blocks: for each exchange, and for the sums of each product."""
    return sizes.slots * sizes.stages.exchanges + len(sizes.stages.products)


def published(sizes: Sizes, product: Product, *blocks: int) -> Any:
    shape = (sizes.slots, *blocks, sizes.contracted(product), sizes.shares.rows, sizes.shares.units)
    return mosaic.operand(shape, kind_of(product.value), sizes.shares.units)


def largest(sizes: Sizes) -> list[Product]:
    """Of products whose fetched values look alike, one whose buffers serve all."""
    found: dict[Any, Product] = {}
    for product in sizes.stages.products:
        key = alike(sizes, product)
        if key not in found or sizes.buffers(product) > sizes.buffers(found[key]):
            found[key] = product
    return list(found.values())


def alike(sizes: Sizes, product: Product) -> tuple[str, int]:
    return str(kind_of(product.value)), sizes.piece(product)
