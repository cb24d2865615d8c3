"""How rows and units are shared out among the blocks of a kernel, and the arrays in that form."""

import dataclasses
import math

import jax
import jax.numpy as jnp

from lapwing import jaxprs
from lapwing.jaxprs import Values
from lapwing.loops.persistent._axes import Product
from lapwing.loops.persistent._stages import Stages
from lapwing.loops.persistent._tiles import from_tiles, to_tiles, weight_tiles


@dataclasses.dataclass(frozen=True)
class Shares:
    """`groups` of blocks have `rows` each; in a group each head's units belong to `blocks` blocks, `units` to each."""

    groups: int
    rows: int
    heads: int
    blocks: int
    units: int
    split: int = 1
    """Blocks of a cluster that multiply a share of the published units each, for the units of all of them, and then
    give each other the sums: what a block fetches is less by this factor."""
    buffers: int = 0
    """Pieces of what is fetched that there is room for; 0 for all."""
    near: bool = False
    """Whether blocks that wait for each other are one cluster, and write into each other's shared memory."""

    @property
    def in_group(self) -> int:
        return self.heads * self.blocks

    @property
    def width(self) -> int:
        """All units, with those that only fill up the last block of a head."""
        return self.in_group * self.units

    @property
    def all_rows(self) -> int:
        return self.groups * self.rows


@dataclasses.dataclass(frozen=True, eq=False)
class Arguments:
    """The arrays of a loop in the form that blocks share: (…, rows, parts, units); scalars are (…, parts)."""

    consts: list[jax.Array]
    init: list[jax.Array]
    xs: list[jax.Array]
    weights: list[jax.Array]
    """Of each product, (blocks, peers, result's parts, units of a block, value's parts, units): for each block of a
    cluster the columns of all its peers, as rows, for its own share of the published units."""


def share(stages: Stages, shares: Shares, values: Values) -> Arguments:
    """The inputs of a loop in that form."""
    loop = stages.loop
    given = dict(zip(loop.jaxpr.invars, values, strict=True))
    return Arguments(
        [tile(stages, shares, var, given[var]) for var in stages.consts],
        [tile(stages, shares, var, given[var]) for var in loop.carry],
        [tile(stages, shares, var, given[var], 1) for var in stages.xs],
        [_columns(stages, shares, product, given[product.weight]) for product in stages.products],
    )


def tile(stages: Stages, shares: Shares, var: jaxprs.Atom, value: jax.Array, leading: int = 0) -> jax.Array:
    tiles = to_tiles(stages, var, value, leading)
    if stages.is_scalar(var):
        return tiles
    filled = [(0, 0)] * tiles.ndim
    filled[leading] = (0, shares.all_rows - tiles.shape[leading])
    return _fill_units(shares, jnp.pad(tiles, filled), -1)


def untile(stages: Stages, shares: Shares, var: jaxprs.Atom, tiles: jax.Array, leading: int = 0) -> jax.Array:
    """An output of the loop, from the form that blocks share."""
    if not stages.is_scalar(var):
        each = stages.units // shares.heads
        tiles = tiles.reshape(*tiles.shape[:-1], shares.heads, -1)[..., :each]
        tiles = tiles.reshape(*tiles.shape[:-2], stages.units)
        tiles = jax.lax.slice_in_dim(tiles, 0, math.prod(stages.rows), axis=leading)
    return from_tiles(stages, var, tiles, leading).astype(jaxprs.dtype(var))


def _fill_units(shares: Shares, value: jax.Array, axis: int) -> jax.Array:
    """The units of each head filled up to those of its blocks, with zeros."""
    axis %= value.ndim
    before, after = value.shape[:axis], value.shape[axis + 1 :]
    each = value.shape[axis] // shares.heads
    value = value.reshape(*before, shares.heads, each, *after)
    filled = [(0, 0)] * value.ndim
    filled[axis + 1] = (0, shares.blocks * shares.units - each)
    return jnp.pad(value, filled).reshape(*before, shares.width, *after)


def _columns(stages: Stages, shares: Shares, product: Product, weight: jax.Array) -> jax.Array:
    tiles = weight_tiles(stages, product, weight)
    heads, parts, _, new, _ = tiles.shape
    if product.head:
        more = shares.blocks * shares.units - tiles.shape[-1]
        tiles = jnp.pad(tiles, [(0, 0), (0, 0), (0, more), (0, 0), (0, more)])
    else:
        tiles = _fill_units(shares, _fill_units(shares, tiles, 2), 4)
    tiles = tiles.reshape(heads, parts, tiles.shape[2], new, -1, shares.units)
    columns = tiles.transpose(0, 4, 3, 5, 1, 2).reshape(
        -1, shares.split, new, shares.units, parts, shares.split, tiles.shape[2] // shares.split
    )
    return columns.transpose(0, 5, 1, 2, 3, 4, 6).reshape(
        shares.in_group, shares.split, new, shares.units, parts, -1
    )


def exists(stages: Stages, shares: Shares) -> jax.Array | None:
    """Which units exist, 1.0 or 0.0; None if all do."""
    if shares.width == stages.units:
        return None
    return _fill_units(shares, jnp.ones(stages.units, jnp.float32), 0)
