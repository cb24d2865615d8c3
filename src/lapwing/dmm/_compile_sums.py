"""Accumulators that read nothing of their own stage but themselves, by a fixed link of weight 1: sums over time.

Their loop is the simplest there is, and needs no loop: what such an accumulator holds is the sum of all that
it was given so far, for all cycles at once. The sum is taken in blocks of cycles, by products with triangles
of ones.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from ._activation import Activation
from ._layout_flow import Flow
from ._layout_stages import Group, Plan


def only_adds_up(flow: Flow, plan: Plan, groups: Sequence[Group], group: Group) -> bool:
    """Whether the group is one of plain accumulators that only sum up, among the knotted groups of its stage."""
    function = group.neuron.functions[0]
    if group.neuron.fluid or (function.basis or function.name) != "accum":
        return False
    mine = {(name, field) for name in group.names for field in function.inputs}
    written = {(name, field) for other in groups for name in other.names for field, _ in other.outputs}
    inside = {link: place for link, place in plan.weights.items() if link[0] in mine and link[1] in written}
    own = {((name, function.inputs[0]), (name, function.outputs[0])) for name in group.names}
    return inside.keys() == own and all(_is_fixed_one(flow, place) for place in inside.values())


def _is_fixed_one(flow: Flow, place: int) -> bool:
    return flow.paths[place] in flow.machine.hard and flow.leaf(place) == 1.0


def running_sum(
    function: Activation, start: jax.Array, memory: jax.Array | None, change: jax.Array | None, cycles: int
) -> jax.Array:
    """What stands in the accumulator at the beginning of each cycle, given what else is added to its memory, and to its
    change. Truncated, only the latest change has a gradient."""
    given = [part for part in (memory, change) if part is not None]
    if not given:
        return jnp.broadcast_to(start, (cycles, *start.shape))
    before = start + _sums_before(sum(given[1:], given[0]))
    if function.options["accumulator_gradient"] == "full":
        return before
    held = jax.lax.stop_gradient(before)
    if change is None:
        return jnp.concatenate([start[None], held[1:]])
    latest = change - jax.lax.stop_gradient(change)
    return jnp.concatenate([start[None], held[1:] + latest[:-1]])


def _sums_before(given: jax.Array) -> jax.Array:
    """For each cycle the sum over all cycles before it."""
    cycles = len(given)
    size = max(1, math.isqrt(cycles))
    blocks = -(-cycles // size)
    rows = jnp.pad(given.reshape(cycles, -1), ((0, blocks * size - cycles), (0, 0))).reshape(blocks, size, -1)
    within = jnp.einsum("ij,bjx->bix", jnp.tri(size, k=-1, dtype=given.dtype), rows)
    earlier = jnp.tri(blocks, k=-1, dtype=given.dtype) @ jnp.sum(rows, axis=1)
    return (within + earlier[:, None]).reshape(blocks * size, -1)[:cycles].reshape(given.shape)
