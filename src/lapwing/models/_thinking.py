"""The loop over thinking steps: the latents of each step, with those of earlier steps in a key-value cache.

The gradient is fast on a CPU because of what it does not keep. Each step is recomputed in the backward pass from its
inputs: the latents and the cache. A scan would keep the cache of every step, though each differs from the next by one
block. But a cache with room for all blocks only grows, so the last one serves every step, which masks the blocks that
come later. The derivative is written to read that last cache. It is a JVP rule, from which JAX derives gradients and
higher derivatives.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from lapwing.loops import scan

from ._attention import KeyValue, Source
from ._cache import KeyValueCache
from ._layer import FoldedLayer, keys_values

# A step is many small products or kernels: two per iteration have less loop overhead, more compile slower.
_UNROLL = 2

Latents = Float[Array, "latents width"]
Thoughts = Float[Array, "steps latents width"]


class Thinking(NamedTuple):
    """The differentiable inputs of all steps; their tangents are a `Thinking` too."""

    layers: Sequence[FoldedLayer]
    inputs: Sequence[KeyValue]
    times: Float[Array, "steps width"]
    first: Latents
    cache: tuple[KeyValue, ...]


class Visible(NamedTuple):
    """The positions of the input that are not padding, and the steps that see the input."""

    positions: Bool[Array, " input"]
    steps: Bool[Array, " steps"]


def think(thinking: Thinking, visible: Visible) -> Thoughts:
    """The latents after each step."""
    slots, steps = thinking.cache[0].keys.shape[1], len(thinking.times)
    if jax.default_backend() != "cpu":
        return _forward(thinking, visible, unroll=_UNROLL)[0]
    if slots < steps * len(thinking.first):
        # Old blocks are overwritten, so each step has its own cache.
        return _forward(thinking, visible, memory=1)[0]
    return _think_from_last_cache(thinking, visible)


def _forward(thinking: Thinking, visible: Visible, **options: int) -> tuple[Thoughts, KeyValueCache]:
    def step(
        carry: tuple[Latents, KeyValueCache], x: tuple[Float[Array, " width"], Bool[Array, ""]]
    ) -> tuple[tuple[Latents, KeyValueCache], Latents]:
        latents, cache = _step(thinking.layers, thinking.inputs, visible.positions, *carry, *x)
        return (latents, cache), latents

    start = thinking.first, KeyValueCache(thinking.cache, jnp.int32(0))
    (_, cache), thoughts = scan(step, start, (thinking.times, visible.steps), **options)  # pyright: ignore[reportArgumentType]
    return thoughts, cache


def _step(
    layers: Sequence[FoldedLayer],
    inputs: Sequence[KeyValue],
    positions: Bool[Array, " input"],
    latents: Latents,
    cache: KeyValueCache,
    time: Float[Array, " width"],
    sees_input: Bool[Array, ""],
) -> tuple[Latents, KeyValueCache]:
    """The latents after one step, and the cache with them in it."""
    latents = latents + time
    for layer, key_value, past in zip(layers, inputs, cache.layers, strict=True):
        sources = [Source(past, cache.filled), Source(key_value, positions & sees_input)]
        latents = layer.self_attend(latents, sources)
    return latents, cache.append(keys_values(layers, latents))


@jax.custom_jvp
def _think_from_last_cache(thinking: Thinking, visible: Visible) -> Thoughts:
    return _forward(thinking, visible, unroll=_UNROLL)[0]


@_think_from_last_cache.defjvp
def _tangents(
    primals: tuple[Thinking, Visible], tangents: tuple[Thinking, Visible]
) -> tuple[Thoughts, Thoughts]:
    thinking, visible = primals
    thinking_dot = tangents[0]
    thoughts, last = _forward(thinking, visible, unroll=_UNROLL)

    def tangent(
        carry: tuple[Latents, tuple[KeyValue, ...]], x: tuple[Int[Array, ""], Array, Array, Array, Array]
    ) -> tuple[tuple[Latents, tuple[KeyValue, ...]], Latents]:
        number, latents, time, time_dot, sees_input = x

        def step(
            layers: Sequence[FoldedLayer],
            inputs: Sequence[KeyValue],
            latents: Array,
            past: tuple[KeyValue, ...],
            time: Array,
        ) -> tuple[Array, tuple[KeyValue, ...]]:
            cache = KeyValueCache(past, number * latents.shape[0])
            latents, cache = _step(layers, inputs, visible.positions, latents, cache, time, sees_input)
            return latents, cache.layers

        primal = thinking.layers, thinking.inputs, latents, last.layers, time
        _, after = jax.jvp(step, primal, (thinking_dot.layers, thinking_dot.inputs, *carry, time_dot))
        return after, after[0]

    before = jnp.concatenate([thinking.first[None], thoughts[:-1]])
    xs = jnp.arange(len(before)), before, thinking.times, thinking_dot.times, visible.steps
    # Without the checkpoint all intermediates of a step would be kept.
    _, thoughts_dot = jax.lax.scan(
        jax.checkpoint(tangent, prevent_cse=False),
        (thinking_dot.first, thinking_dot.cache),
        xs,
        unroll=_UNROLL,
    )
    return thoughts, thoughts_dot
