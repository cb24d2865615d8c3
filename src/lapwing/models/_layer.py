"""A pre-norm transformer layer whose queries attend to a list of sources, each with precomputed keys and values.

So the keys of an input that does not change, and those of a cache, are computed once. Written for one example; a batch
is a `jax.vmap` around it, so that no axis can be mistaken for another.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, DTypeLike, Float, Key

from ._attention import KeyValue, Source, attend

_EPSILON = 1e-6
_HIDDEN = 4  # The feed-forward's inner width, in widths.

Vectors = Float[Array, "positions width"]


class RmsNorm(eqx.Module):
    """Scales each vector to a mean square of 1, in float32, and by a learned gain."""

    gain: Float[Array, " width"]

    def __init__(self, width: int):
        self.gain = jnp.ones(width)

    def __call__(self, x: Vectors) -> Vectors:
        return (unit(x) * self.gain).astype(x.dtype)


class Layer(eqx.Module):
    """Attention to sources, then a feed-forward, each behind a norm and with a residual connection.

    >>> def attend_to_itself(x):
    ...     return Layer(width=8, heads=2, key=jax.random.key(0)).fold(jnp.float32).self_attend(x, [])
    >>> jax.eval_shape(attend_to_itself, jnp.ones((3, 8))).shape
    (3, 8)
    """

    attention_norm: RmsNorm
    query: Float[Array, "width heads size"]
    key_value: Float[Array, "width 2 heads size"]
    mix: Float[Array, "heads size width"]
    forward_norm: RmsNorm
    widen: Float[Array, "width hidden"]
    widen_bias: Float[Array, " hidden"]
    narrow: Float[Array, "hidden width"]

    def __init__(self, width: int, heads: int, key: Key[Array, ""]):
        query_key, key_value_key, mix_key, widen_key, narrow_key = jax.random.split(key, 5)
        size, hidden = width // heads, _HIDDEN * width
        self.attention_norm, self.forward_norm = RmsNorm(width), RmsNorm(width)
        self.query = normal(query_key, (width, heads, size), width)
        self.key_value = normal(key_value_key, (width, 2, heads, size), width)
        self.mix = normal(mix_key, (heads, size, width), width)
        self.widen = normal(widen_key, (width, hidden), width)
        self.widen_bias = jnp.zeros(hidden)
        self.narrow = normal(narrow_key, (hidden, width), hidden)

    def fold(self, dtype: DTypeLike) -> "FoldedLayer":
        """The weights with the gains of the norms folded in, in the dtype of the computation."""
        width = self.query.shape[0]
        gain = self.attention_norm.gain[:, None]
        return FoldedLayer(
            query=(gain * self.query.reshape(width, -1)).astype(dtype),
            key_value=(gain * self.key_value.reshape(width, -1)).astype(dtype),
            mix=self.mix.astype(dtype),
            widen=(self.forward_norm.gain[:, None] * self.widen).astype(dtype),
            widen_bias=self.widen_bias.astype(dtype),
            narrow=self.narrow.astype(dtype),
        )


class FoldedLayer(NamedTuple):
    """The weights of a layer, folded once for all steps: a step then neither multiplies by a gain nor accumulates its
    gradient, and normalizes a vector once for all layers that attend to it."""

    query: Float[Array, "width heads*size"]
    key_value: Float[Array, "width 2*heads*size"]
    mix: Float[Array, "heads size width"]
    widen: Float[Array, "width hidden"]
    widen_bias: Float[Array, " hidden"]
    narrow: Float[Array, "hidden width"]

    def self_attend(self, x: Vectors, sources: Sequence[Source]) -> Vectors:
        """The vectors after attention to the sources and to each other."""
        projected = unit(x) @ jnp.concatenate([self.query, self.key_value], axis=1)
        queries, keys, values = _by_heads(projected, 3, self.mix.shape[0])
        themselves = Source(KeyValue(keys, values), jnp.ones(x.shape[0], bool))
        return self._forward(x, queries, [*sources, themselves])

    def __call__(self, x: Vectors, sources: Sequence[Source]) -> Vectors:
        """The vectors after attention to the sources."""
        (queries,) = _by_heads(unit(x) @ self.query, 1, self.mix.shape[0])
        return self._forward(x, queries, sources)

    def _forward(self, x: Vectors, queries: Array, sources: Sequence[Source]) -> Vectors:
        x = x + jnp.einsum("hqs,hsw->qw", attend(queries, sources), self.mix)
        hidden = jax.nn.gelu(unit(x) @ self.widen + self.widen_bias)
        return x + hidden @ self.narrow


def keys_values(layers: Sequence[FoldedLayer], x: Vectors) -> tuple[KeyValue, ...]:
    """The keys and values of vectors in each layer, by one product for all layers."""
    heads = layers[0].mix.shape[0]
    both = _by_heads(
        unit(x) @ jnp.concatenate([layer.key_value for layer in layers], axis=1), 2 * len(layers), heads
    )
    return tuple(KeyValue(both[at], both[at + 1]) for at in range(0, len(both), 2))


def unit(x: Vectors) -> Vectors:
    """Each vector scaled to a mean square of 1, in float32."""
    exact = x.astype(jnp.float32)
    size = jnp.mean(exact**2, axis=-1, keepdims=True)
    return (exact * jax.lax.rsqrt(size + _EPSILON)).astype(x.dtype)


def _by_heads(x: Float[Array, "positions columns"], parts: int, heads: int) -> list[Array]:
    """The columns in equal parts, each with the head axis before the positions."""
    return list(x.reshape(x.shape[0], parts, heads, -1).transpose(1, 2, 0, 3))


def normal(key: Key[Array, ""], shape: tuple[int, ...], inputs: int) -> Float[Array, "..."]:
    """Normal weights with variance 1 / inputs."""
    return inputs**-0.5 * jax.random.normal(key, shape)
