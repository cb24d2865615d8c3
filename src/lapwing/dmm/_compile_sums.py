"""Accumulators that read nothing of their own stage but themselves, by a fixed link of weight 1: running sums.

Their value is the sum of all inputs so far, computed for all cycles at once without a loop: in blocks of cycles, by
products with triangles of ones.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from ._activation import Activation
from ._compile_products import product
from ._layout_flow import Flow
from ._layout_stages import Group, Plan


def is_running_sum(flow: Flow, plan: Plan, groups: Sequence[Group], group: Group) -> bool:
    """Whether the group, one of the recurrent `groups` of its stage, only sums up its inputs."""
    function = group.neuron.functions[0]
    if group.neuron.fluid or not function.accumulator:
        return False
    mine = {(name, field) for name in group.names for field in function.inputs}
    written = {(name, field) for other in groups for name in other.names for field, _ in other.outputs}
    inside = {link: index for link, index in plan.weights.items() if link[0] in mine and link[1] in written}
    own = {((name, function.inputs[0]), (name, function.outputs[0])) for name in group.names}
    return inside.keys() == own and all(
        flow.paths[index] in flow.machine.hard and flow.leaf(index) == 1.0 for index in inside.values()
    )


def running_sum(
    function: Activation, start: jax.Array, memory: jax.Array | None, change: jax.Array | None, cycles: int
) -> jax.Array:
    """The accumulator at the beginning of each cycle, given what is added to its memory and to its change. If it is
    truncated, only the latest change has a gradient."""
    given = [part for part in (memory, change) if part is not None]
    if not given:
        return jnp.broadcast_to(start, (cycles, *start.shape))
    before = start + _sums_before(sum(given[1:], given[0]))
    if not function.truncated:
        return before
    kept = jax.lax.stop_gradient(before)
    if change is None:
        return jnp.concatenate([start[None], kept[1:]])
    latest = change - jax.lax.stop_gradient(change)
    return jnp.concatenate([start[None], kept[1:] + latest[:-1]])


def _sums_before(given: jax.Array) -> jax.Array:
    """For each cycle the sum over all cycles before it."""
    cycles = len(given)
    size = max(1, math.isqrt(cycles))
    blocks = -(-cycles // size)
    rows = jnp.pad(given.reshape(cycles, -1), ((0, blocks * size - cycles), (0, 0))).reshape(blocks, size, -1)
    within = jax.vmap(product, (None, 0))(jnp.tri(size, k=-1, dtype=given.dtype), rows)
    earlier = product(jnp.tri(blocks, k=-1, dtype=given.dtype), jnp.sum(rows, axis=1))
    return (within + earlier[:, None]).reshape(blocks * size, -1)[:cycles].reshape(given.shape)
