"""A memory of keys and values with a fixed number of slots, and a count of what was ever put in.

Nothing is changed in place and no shape grows: what is put in is a new memory, of which the compiler makes an update in
place where it may. When all slots are full, the oldest is given up.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, DTypeLike, Int

from ._attention import Offer


class Memory(NamedTuple):
    """For each layer the keys and values of what was thought, and how much was ever put in."""

    layers: tuple[Offer, ...]
    filled: Int[Array, ""]


def empty(layers: int, slots: int, heads: int, size: int, dtype: DTypeLike) -> Memory:
    """A memory with nothing in it.

    >>> memory = empty(layers=1, slots=6, heads=3, size=4, dtype=jnp.float32)
    >>> thought = Offer(jnp.ones((3, 2, 4)), jnp.ones((3, 2, 4)))
    >>> present(remembered(memory, (thought,))).tolist()
    [True, True, False, False, False, False]
    """
    nothing = jnp.zeros((heads, slots, size), dtype)
    return Memory(tuple(Offer(nothing, nothing) for _ in range(layers)), jnp.int32(0))


def remembered(memory: Memory, thoughts: tuple[Offer, ...]) -> Memory:
    """The memory with one more thought in it, which has as many places in each layer; a thought is never split, so the
    slots are a multiple of its places."""
    slots, places = memory.layers[0].keys.shape[1], thoughts[0].keys.shape[1]
    if slots % places:
        raise ValueError(f"expected slots in multiples of the {places} places of a thought, found {slots}")
    at = memory.filled % slots
    layers = jax.tree.map(
        lambda kept, new: jax.lax.dynamic_update_slice_in_dim(kept, new, at, axis=1), memory.layers, thoughts
    )
    return Memory(layers, memory.filled + places)


def present(memory: Memory) -> Bool[Array, " slots"]:
    """Which slots have something in them."""
    return jnp.arange(memory.layers[0].keys.shape[1]) < memory.filled
