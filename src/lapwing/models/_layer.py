"""A layer of attention and feed-forward in which queries and what they attend to are different things.

What is attended to comes as a list of sources, each with its keys and values made before and a mask of what may be
seen. So the keys of an input that does not change, and those of a memory, are made once.

Written for one example; a batch is a `jax.vmap` around it, so no axis of it can be taken for another.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, DTypeLike, Float, Key

from ._attention import Offer, Source, attend

_EPSILON = 1e-6
_HIDDEN = 4  # The feed-forward's inner width, in widths.


class Norm(eqx.Module):
    """Scales each vector to a mean square of one, in float32 whatever it comes in, and by a learned gain."""

    gain: Float[Array, " width"]

    def __init__(self, width: int):
        self.gain = jnp.ones(width)

    def __call__(self, x: Float[Array, "places width"]) -> Float[Array, "places width"]:
        return (unit(x) * self.gain).astype(x.dtype)


class Layer(eqx.Module):
    """Attention to sources, then a feed-forward, each behind a norm and added to what it came from."""

    attention_norm: Norm
    query: Float[Array, "width heads size"]
    key_value: Float[Array, "width 2 heads size"]
    mix: Float[Array, "heads size width"]
    forward_norm: Norm
    widen: Float[Array, "width hidden"]
    widen_bias: Float[Array, " hidden"]
    narrow: Float[Array, "hidden width"]

    def __init__(self, width: int, heads: int, key: Key[Array, ""]):
        of_query, of_keys, of_mix, of_widen, of_narrow = jax.random.split(key, 5)
        size, hidden = width // heads, _HIDDEN * width
        self.attention_norm, self.forward_norm = Norm(width), Norm(width)
        self.query = normal(of_query, (width, heads, size), width)
        self.key_value = normal(of_keys, (width, 2, heads, size), width)
        self.mix = normal(of_mix, (heads, size, width), width)
        self.widen = normal(of_widen, (width, hidden), width)
        self.widen_bias = jnp.zeros(hidden)
        self.narrow = normal(of_narrow, (hidden, width), hidden)

    def ready(self, dtype: DTypeLike) -> "Ready":
        """The layer's weights as they are multiplied with."""
        width = self.query.shape[0]
        scaled = self.attention_norm.gain[:, None]
        return Ready(
            ask=(scaled * self.query.reshape(width, -1)).astype(dtype),
            offer=(scaled * self.key_value.reshape(width, -1)).astype(dtype),
            mix=self.mix.astype(dtype),
            widen=(self.forward_norm.gain[:, None] * self.widen).astype(dtype),
            widen_bias=self.widen_bias.astype(dtype),
            narrow=self.narrow.astype(dtype),
        )


class Ready(NamedTuple):
    """The weights of a layer, with the gains of the norms in them and in the type of the computation.

    Made once for all steps, which then neither multiply with a gain nor add up its gradient, and norm a vector once
    for all layers that it is offered to.
    """

    ask: Float[Array, "width heads*size"]
    offer: Float[Array, "width 2*heads*size"]
    mix: Float[Array, "heads size width"]
    widen: Float[Array, "width hidden"]
    widen_bias: Float[Array, " hidden"]
    narrow: Float[Array, "hidden width"]

    def among(
        self, x: Float[Array, "queries width"], sources: Sequence[Source]
    ) -> Float[Array, "queries width"]:
        """The vectors after they have attended to the sources and to each other."""
        asked_and_offered = unit(x) @ jnp.concatenate([self.ask, self.offer], axis=1)
        queries, keys, values = _by_heads(asked_and_offered, 3, self.mix.shape[0])
        themselves = Source(Offer(keys, values), jnp.ones(x.shape[0], bool))
        return self._on(x, queries, [*sources, themselves])

    def __call__(
        self, x: Float[Array, "queries width"], sources: Sequence[Source]
    ) -> Float[Array, "queries width"]:
        """The vectors after they have attended to the sources."""
        (queries,) = _by_heads(unit(x) @ self.ask, 1, self.mix.shape[0])
        return self._on(x, queries, sources)

    def _on(
        self, x: Float[Array, "queries width"], queries: jax.Array, sources: Sequence[Source]
    ) -> Float[Array, "queries width"]:
        x = x + jnp.einsum("hqs,hsw->qw", attend(queries, sources), self.mix)
        hidden = jax.nn.gelu(unit(x) @ self.widen + self.widen_bias)
        return x + hidden @ self.narrow


def offers(layers: Sequence[Ready], x: Float[Array, "places width"]) -> tuple[Offer, ...]:
    """The keys and values under which vectors can be attended to, for each layer, by one product for all."""
    heads = layers[0].mix.shape[0]
    both = _by_heads(
        unit(x) @ jnp.concatenate([layer.offer for layer in layers], axis=1), 2 * len(layers), heads
    )
    return tuple(Offer(both[at], both[at + 1]) for at in range(0, len(both), 2))


def unit(x: Float[Array, "places width"]) -> Float[Array, "places width"]:
    """Each vector scaled to a mean square of one, in float32 whatever it comes in."""
    exact = x.astype(jnp.float32)
    size = jnp.mean(exact**2, axis=-1, keepdims=True)
    return (exact * jax.lax.rsqrt(size + _EPSILON)).astype(x.dtype)


def _by_heads(x: Float[Array, "places columns"], parts: int, heads: int) -> list[jax.Array]:
    """The parts of the columns, each with its heads before its places."""
    return list(x.reshape(x.shape[0], parts, heads, -1).transpose(1, 2, 0, 3))


def normal(key: Key[Array, ""], shape: tuple[int, ...], inputs: int) -> Float[Array, "..."]:
    """Weights that keep the size of what they are multiplied with."""
    return inputs**-0.5 * jax.random.normal(key, shape)
