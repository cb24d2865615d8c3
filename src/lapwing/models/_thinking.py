"""The loop of thinking: what the latents become, step after step, with what they were in their memory.

What makes its gradient quick on a CPU is what it does not keep. Each step is computed again on the way back, from what
entered it: the latents, and the memory. A scan would keep the memory of every step, though each differs from the next
by one thought. But a memory with room for all of them only ever grows, so the last one serves all steps: those that are
too late for a step it does not see, since it counts how many there are. The derivative is written so that it reads the
last memory. It is a rule for tangents, of which jax makes gradients, and derivatives of derivatives, by itself.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from lapwing.loops import scan

from ._attention import Offer, Source
from ._layer import Ready, offers
from ._memory import Memory, present, remembered

# A step is many small products, or kernels: two in a row wait less for the loop, and more are slower to compile.
_IN_A_ROW = 2


class Thinking(NamedTuple):
    """What the steps are made of; the tangents of a thinking are one of these too."""

    layers: Sequence[Ready]
    of_input: Sequence[Offer]
    times: Float[Array, "steps width"]
    first: Float[Array, "latents width"]
    memory: tuple[Offer, ...]


class Seen(NamedTuple):
    """Which places of the input are real, and in which steps it is shown."""

    real: Bool[Array, " input"]
    shown: Bool[Array, " steps"]


def think(thinking: Thinking, seen: Seen) -> Float[Array, "steps latents width"]:
    """What the latents were after each step."""
    slots, steps = thinking.memory[0].keys.shape[1], len(thinking.times)
    if jax.default_backend() != "cpu":
        return _forward(thinking, seen, unroll=_IN_A_ROW)[0]
    if slots < steps * len(thinking.first):
        return _forward(thinking, seen, memory=1)[
            0
        ]  # Old thoughts are given up, so each step has its own memory.
    return _think_and_keep_little(thinking, seen)


def _forward(
    thinking: Thinking, seen: Seen, **how: int
) -> tuple[Float[Array, "steps latents width"], Memory]:
    def step(
        carry: tuple[Float[Array, "latents width"], Memory],
        at: tuple[Float[Array, " width"], Bool[Array, ""]],
    ) -> tuple[tuple[Float[Array, "latents width"], Memory], Float[Array, "latents width"]]:
        latents, memory = _step(thinking.layers, thinking.of_input, seen.real, *carry, *at)
        return (latents, memory), latents

    start = thinking.first, Memory(thinking.memory, jnp.int32(0))
    (_, memory), thoughts = scan(step, start, (thinking.times, seen.shown), **how)  # pyright: ignore[reportArgumentType]
    return thoughts, memory


def _step(
    layers: Sequence[Ready],
    of_input: Sequence[Offer],
    real: Bool[Array, " input"],
    latents: Float[Array, "latents width"],
    memory: Memory,
    time: Float[Array, " width"],
    shown: Bool[Array, ""],
) -> tuple[Float[Array, "latents width"], Memory]:
    """The latents after one step of thinking, and the memory with them in it."""
    latents = latents + time
    for layer, offer, past in zip(layers, of_input, memory.layers, strict=True):
        latents = layer.among(latents, [Source(past, present(memory)), Source(offer, real & shown)])
    return latents, remembered(memory, offers(layers, latents))


@jax.custom_jvp
def _think_and_keep_little(thinking: Thinking, seen: Seen) -> Float[Array, "steps latents width"]:
    return _forward(thinking, seen, unroll=_IN_A_ROW)[0]


@_think_and_keep_little.defjvp
def _tangents(
    primals: tuple[Thinking, Seen], tangents: tuple[Thinking, Seen]
) -> tuple[Float[Array, "steps latents width"], Float[Array, "steps latents width"]]:
    thinking, seen = primals
    moved = tangents[0]
    thoughts, last = _forward(thinking, seen, unroll=_IN_A_ROW)

    def tangent(
        carry: tuple[Float[Array, "latents width"], tuple[Offer, ...]],
        at: tuple[Int[Array, ""], Array, Array, Array, Array],
    ) -> tuple[tuple[Float[Array, "latents width"], tuple[Offer, ...]], Float[Array, "latents width"]]:
        number, latents, time, moved_time, shown = at

        def step(
            layers: Sequence[Ready],
            of_input: Sequence[Offer],
            latents: Array,
            past: tuple[Offer, ...],
            time: Array,
        ) -> tuple[Array, tuple[Offer, ...]]:
            memory = Memory(past, number * latents.shape[0])
            latents, memory = _step(layers, of_input, seen.real, latents, memory, time, shown)
            return latents, memory.layers

        at_point = thinking.layers, thinking.of_input, latents, last.layers, time
        _, after = jax.jvp(step, at_point, (moved.layers, moved.of_input, *carry, moved_time))
        return after, after[0]

    before = jnp.concatenate([thinking.first[None], thoughts[:-1]])
    xs = jnp.arange(len(before)), before, thinking.times, moved.times, seen.shown
    # Without the checkpoint all that a step computes would be kept after all.
    _, moved_thoughts = jax.lax.scan(
        jax.checkpoint(tangent, prevent_cse=False), (moved.first, moved.memory), xs, unroll=_IN_A_ROW
    )
    return thoughts, moved_thoughts
