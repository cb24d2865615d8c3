"""What the kernel does, in plain jax: blocks are an axis of `jax.vmap`, an exchange is a collective over it.

Slow, and the reference for the kernel: the same stages, the same shares, the same rounding.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from lapwing.jaxprs import Values, dtype
from lapwing.loops.persistent import _evaluate as evaluate
from lapwing.loops.persistent._axes import Product
from lapwing.loops.persistent._evaluate import Parts, parts_from
from lapwing.loops.persistent._shares import (
    Shares,
    exists,
    share,
    untile,
)
from lapwing.loops.persistent._stages import Stage, Stages


def simulate(stages: Stages, shares: Shares, values: Values) -> list[Any]:
    """The last carry and the stacked outputs of the loop, flat."""
    given = share(stages, shares, values)
    block = jax.vmap(
        jax.vmap(lambda own, weights, real: _block(stages, shares, own, weights, real), axis_name="units"),
        in_axes=(0, None, None),
        axis_name="groups",
    )
    own = [[_own(shares, value, value.ndim > scalar) for value in values]
           for values, scalar in ((given.consts, 1), (given.init, 1), (given.xs, 2))]  # fmt: skip
    real = exists(stages, shares)
    real = jnp.ones(shares.width) if real is None else real
    out = block(own, given.weights, real.reshape(shares.in_group, shares.units))
    loop = stages.loop
    outputs = [*zip(loop.carry_out, [0] * loop.num_carry, strict=True), *((var, 1) for var in loop.ys)]
    return [untile(stages, shares, var, _joined(stages, shares, var, value), leading)
            for (var, leading), value in zip(outputs, out, strict=True)]  # fmt: skip


def _own(shares: Shares, value: jax.Array, tiled: bool) -> jax.Array:
    """(groups, blocks, …, parts, rows, units) of (…, rows, parts, units)."""
    if not tiled:
        return jnp.broadcast_to(value, (shares.groups, shares.in_group, *value.shape))
    front = value.shape[:-3]
    value = value.reshape(*front, shares.groups, shares.rows, -1, shares.in_group, shares.units)
    order = (
        [len(front) + axis for axis in (0, 3)]
        + list(range(len(front)))
        + [len(front) + axis for axis in (2, 1, 4)]
    )
    return value.transpose(order)


def _joined(stages: Stages, shares: Shares, var: Any, value: jax.Array) -> jax.Array:
    if stages.is_scalar(var):
        return value[0, 0]
    middle = list(range(2, value.ndim - 3))
    value = value.transpose(*middle, 0, value.ndim - 2, value.ndim - 3, 1, value.ndim - 1)
    return value.reshape(*(value.shape[: len(middle)]), shares.all_rows, -1, shares.width)


def _block(
    stages: Stages, shares: Shares, own: list[list[jax.Array]], weights: list[jax.Array], real: jax.Array
) -> list[Any]:
    loop = stages.loop
    consts, init, xs = own
    of_product = dict(zip(map(id, stages.products), weights, strict=True))

    def parts(var: Any, value: Any) -> Parts:
        return parts_from(list(value), stages.parts(var))

    fixed = {var: parts(var, value) for var, value in zip(stages.consts, consts, strict=True)}

    def step(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        env = {**fixed}
        env |= {
            var: parts(var, value) for var, value in zip([*loop.carry, *stages.xs], [*carry, *x], strict=True)
        }
        for stage in stages.stages:
            evaluate.run(stages, stage.eqns, env)
            env |= _exchange(stages, shares, stage, env, of_product, real)
        out = [_filled(stages, shares, env, var) for var in loop.jaxpr.outvars]
        return out[: loop.num_carry], out[loop.num_carry :]

    start = [jnp.stack([evaluate._computed(part) for part in value]) for value in init]
    carry, ys = lax.scan(step, start, xs, length=loop.length, reverse=loop.reverse)
    return [*carry, *ys]


def _filled(stages: Stages, shares: Shares, env: Any, var: Any) -> jax.Array:
    """The parts of an output as one array."""
    found = evaluate.read(stages, env, var).ravel()
    tile = () if stages.is_scalar(var) else (shares.rows, shares.units)
    return jnp.stack([jnp.broadcast_to(part, tile) for part in found])


def _exchange(
    stages: Stages, shares: Shares, stage: Stage, env: Any, weights: dict[int, jax.Array], real: jax.Array
) -> dict[core.Var, Parts]:
    found = {}
    for product in stage.products:
        value = evaluate.read(stages, env, product.value)
        found[product.out] = _multiplied(stages, shares, product, value, weights[id(product)], real)
    for eqn in stage.sums:
        (value,) = (evaluate.read(stages, env, atom) for atom in eqn.invars)
        found[eqn.outvars[0]] = _summed(stages, shares, eqn, value, real)
    return found


def _multiplied(
    stages: Stages, shares: Shares, product: Product, value: Parts, weight: jax.Array, real: jax.Array
) -> Parts:
    order = [axis for axis in range(value.ndim) if axis not in product.contracted]
    published = value.transpose(*order, *product.contracted).ravel()
    kind = dtype(product.value)
    tiles = [jnp.broadcast_to(part, (shares.rows, shares.units)) for part in published]
    tiles = [jnp.where(real > 0, part, 0).astype(kind) for part in tiles]
    everyone = lax.all_gather(jnp.stack(tiles), "units")
    everyone = everyone.transpose(1, 2, 0, 3).reshape(len(tiles), shares.rows, shares.width)
    if product.head:
        each = shares.blocks * shares.units
        mine = lax.axis_index("units") // shares.blocks * each
        everyone = lax.dynamic_slice_in_dim(everyone, mine, each, axis=2)
    # A share of the units, for all blocks of the cluster, whose sums go to each of them.
    share = lax.axis_index("units") % shares.split
    mine = everyone.shape[2] // shares.split
    everyone = lax.dynamic_slice_in_dim(everyone, share * mine, mine, axis=2)
    sums = jnp.einsum(
        "krd,poukd->poru", everyone, weight, preferred_element_type=jnp.float32, precision="highest"
    )
    first = lax.axis_index("units") - share
    given = lax.dynamic_slice_in_dim(lax.all_gather(sums, "units"), first, shares.split)
    out = jnp.sum(lax.dynamic_index_in_dim(given, share, 1, keepdims=False), axis=0)
    return parts_from(list(out), stages.parts(product.out))


def _summed(stages: Stages, shares: Shares, eqn: core.JaxprEqn, value: Parts, real: jax.Array) -> Parts:
    over, name = eqn.params["axes"], eqn.primitive.name
    kept = [axis for axis in range(value.ndim) if axis not in over]
    columns = value.transpose(*kept, *over).reshape(int(np.prod([value.shape[axis] for axis in kept])), -1)
    across = {"reduce_sum": lax.psum, "reduce_max": lax.pmax, "reduce_min": lax.pmin}[name]
    nothing = {"reduce_sum": 0.0, "reduce_max": -jnp.inf, "reduce_min": jnp.inf}[name]
    sums = []
    for column in columns:
        tiles = [jnp.broadcast_to(part, (shares.rows, shares.units)) for part in column]
        tiles = [jnp.where(real > 0, part, nothing) for part in tiles]
        local = getattr(jnp, name.removeprefix("reduce_"))(jnp.stack(tiles), axis=(0, 2))
        sums.append(jnp.broadcast_to(across(local, "units")[:, None], (shares.rows, shares.units)))
    return parts_from(sums, stages.parts(eqn.outvars[0]))
