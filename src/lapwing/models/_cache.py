"""A key-value cache with a fixed number of slots. When all are full, the oldest entries are overwritten.

No shape grows and nothing is mutated: appending returns a new cache, which the compiler updates in place where it can.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, DTypeLike, Int

from ._attention import KeyValue


class KeyValueCache(NamedTuple):
    """The keys and values of each layer, and the number of entries ever appended.

    >>> cache = KeyValueCache.empty(layers=1, slots=6, heads=3, size=4, dtype=jnp.float32)
    >>> entry = KeyValue(jnp.ones((3, 2, 4)), jnp.ones((3, 2, 4)))
    >>> cache.append((entry,)).filled.tolist()
    [True, True, False, False, False, False]
    """

    layers: tuple[KeyValue, ...]
    appended: Int[Array, ""]

    @classmethod
    def empty(cls, layers: int, slots: int, heads: int, size: int, dtype: DTypeLike) -> "KeyValueCache":
        zeros = jnp.zeros((heads, slots, size), dtype)
        return cls(tuple(KeyValue(zeros, zeros) for _ in range(layers)), jnp.int32(0))

    def append(self, entries: tuple[KeyValue, ...]) -> "KeyValueCache":
        """The cache with one more block of entries, of the same length in each layer. A block is never split, so the
        number of slots must be a multiple of its length."""
        slots, length = self.layers[0].keys.shape[1], entries[0].keys.shape[1]
        if slots % length:
            raise ValueError(f"expected slots in multiples of the {length} entries of a block, found {slots}")
        at = self.appended % slots
        layers = jax.tree.map(
            lambda kept, new: jax.lax.dynamic_update_slice_in_dim(kept, new, at, axis=1), self.layers, entries
        )
        return KeyValueCache(layers, self.appended + length)

    @property
    def filled(self) -> Bool[Array, " slots"]:
        """Which slots hold an entry."""
        return jnp.arange(self.layers[0].keys.shape[1]) < self.appended
