"""A small transformer that thinks in steps: a few latent vectors attend to the input and to their own past, repeatedly.

In each step the latents attend to [cache | input | latents], and their keys and values are appended to the cache. All
steps share their weights and are one `lw.scan`. Then learned queries, one for each position of the answer, attend to
the past latents (and to the input, unless it is hidden) and predict the whole answer at once.

A step does not depend on later ones. So one computation of the longest thinking also gives the answers after fewer
steps, by a mask: the number of steps can be an array that changes without recompiling.
"""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from lapwing.core import LapwingError

from ._attention import Source
from ._cache import KeyValueCache
from ._layer import Layer, RmsNorm, keys_values, normal
from ._thinking import Thinking, Visible, think

_PAD = 0
_SCALE = 0.7  # Of tokens and latents: about that of the sinusoids of positions and times.


class ThinkerError(LapwingError, ValueError):
    """An invalid size of a thinker."""


@dataclass(frozen=True)
class ThinkerSize:
    """The size of a thinker.

    >>> ThinkerSize(width=30, heads=4)
    Traceback (most recent call last):
    lapwing.models._thinker.ThinkerError: model.width should be a multiple of the heads (4), but is 30
    """

    latents: int = 4
    """number of latent vectors"""
    steps: int = 2
    """thinking steps"""
    heads: int = 4
    """attention heads"""
    width: int = 64
    """size of each vector"""
    layers: int = 2
    """layers of attention and feed-forward in each step, and in reading the answer"""
    slots: int = 0
    """slots of the key-value cache, a multiple of the latents; the oldest are overwritten; 0: room for all steps"""
    hide_input_after: int | None = None
    """hide the input after this step (the first is 0) and when the answer is read"""
    tied: bool = False
    """read the answer with the weights of thinking instead of separate ones"""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """dtype of the computation; parameters, norms and attention weights are always float32"""

    def __post_init__(self) -> None:
        for name in ("latents", "steps", "heads", "width", "layers"):
            self._check(name, getattr(self, name) >= 1, "at least 1")
        self._check("width", self.width % self.heads == 0, f"a multiple of the heads ({self.heads})")
        self._check("width", self.width % 2 == 0, "even")
        fits = self.slots >= 0 and self.slots % self.latents == 0
        self._check("slots", fits, f"a multiple of the latents ({self.latents}), or 0 for room for all")
        hides = self.hide_input_after
        self._check(
            "hide_input_after", hides is None or hides >= 0, "at least 0, so that a step sees the input"
        )

    def _check(self, name: str, good: bool, expected: str) -> None:
        if not good:
            raise ThinkerError(f"model.{name} should be {expected}, but is {getattr(self, name)}")


class Thinker(eqx.Module):
    """Maps one sequence of tokens to another; token 0 is padding.

    >>> model = Thinker(ThinkerSize(width=16), vocabulary=12, inputs=6, outputs=4, key=jax.random.key(0))
    >>> model(jnp.array([3, 4, 5, 0, 0, 0]), 4).shape
    (4, 12)
    """

    size: ThinkerSize = eqx.field(static=True)
    embedding: Float[Array, "vocabulary width"]
    places: Float[Array, "inputs width"]
    latents: Float[Array, "latents width"]
    clock: Float[Array, " width"]
    layers: tuple[Layer, ...]
    queries: Float[Array, "outputs width"]
    readers: tuple[Layer, ...]
    norm: RmsNorm
    head: Float[Array, "width vocabulary"]
    head_bias: Float[Array, " vocabulary"]

    def __init__(self, size: ThinkerSize, vocabulary: int, inputs: int, outputs: int, key: Key[Array, ""]):
        token_key, latent_key, layer_key, reader_key, head_key = jax.random.split(key, 5)
        width = size.width
        self.size = size
        self.embedding = _SCALE * jax.random.normal(token_key, (vocabulary, width))
        self.places = sinusoids(jnp.arange(inputs), width)
        self.latents = _SCALE * jax.random.normal(latent_key, (size.latents, width))
        self.clock = jnp.ones(width)
        self.layers = _stack(size, layer_key)
        self.queries = sinusoids(jnp.arange(outputs), width)
        self.readers = () if size.tied else _stack(size, reader_key)
        self.norm = RmsNorm(width)
        self.head = normal(head_key, (width, vocabulary), width)
        self.head_bias = jnp.zeros(vocabulary)

    def __call__(
        self,
        tokens: Int[Array, " input"],
        outputs: int,
        steps: Int[Array, ""] | int | None = None,
        most: int | None = None,
    ) -> Float[Array, "outputs vocabulary"]:
        """The logits of the answer after `steps` thinking steps, by default `size.steps`.

        `steps` may be an array of at most `most`, which is static: only another `most` recompiles.
        """
        x = self.embed(tokens)
        thoughts = self.think(x, most or self.size.steps)
        return self.read(x, thoughts, outputs, (self.size.steps if steps is None else steps) - 1)

    def at_every_step(
        self, tokens: Int[Array, " input"], outputs: int
    ) -> Float[Array, "steps outputs vocabulary"]:
        """The logits after one thinking step, after two, and so on."""
        x = self.embed(tokens)
        thoughts = self.think(x, self.size.steps)
        return jax.vmap(lambda step: self.read(x, thoughts, outputs, step))(jnp.arange(self.size.steps))

    def embed(self, tokens: Int[Array, " input"]) -> "Embedded":
        vectors = jnp.asarray(self.embedding)[tokens] + self.places[: tokens.shape[0]]
        return Embedded(vectors.astype(self.size.dtype), tokens != _PAD)

    def think(
        self, x: "Embedded", steps: int, sees_input: Bool[Array, " steps"] | None = None
    ) -> Float[Array, "steps latents width"]:
        """The latents after each step. `sees_input` overrides which steps attend to the input."""
        size = self.size
        layers = [layer.fold(size.dtype) for layer in self.layers]
        if sees_input is None:
            last = steps if size.hide_input_after is None else size.hide_input_after
            sees_input = jnp.arange(steps) <= last
        slots = min(size.slots or steps * size.latents, steps * size.latents)
        cache = KeyValueCache.empty(size.layers, slots, size.heads, size.width // size.heads, size.dtype)
        thinking = Thinking(
            layers=layers,
            inputs=keys_values(layers, x.vectors),
            times=(sinusoids(jnp.arange(steps), size.width) * self.clock).astype(size.dtype),
            first=self.latents.astype(size.dtype),
            cache=cache.layers,
        )
        return think(thinking, Visible(x.mask, sees_input))

    def read(
        self,
        x: "Embedded",
        thoughts: Float[Array, "steps latents width"],
        outputs: int,
        step: Int[Array, ""] | int,
    ) -> Float[Array, "outputs vocabulary"]:
        """The logits of the answer from the cache after a step; the first step is 0."""
        size = self.size
        ages = step - jnp.arange(thoughts.shape[0])
        kept = (size.slots or thoughts.shape[0] * size.latents) // size.latents
        mask = jnp.repeat((ages >= 0) & (ages < kept), size.latents)
        past = thoughts.reshape(-1, size.width)
        answers = self.queries[:outputs].astype(size.dtype)
        readers = [layer.fold(size.dtype) for layer in self.readers or self.layers]
        sources = [[Source(key_value, mask)] for key_value in keys_values(readers, past)]
        if size.hide_input_after is None:
            for each, key_value in zip(sources, keys_values(readers, x.vectors), strict=True):
                each.append(Source(key_value, x.mask))
        for layer, each in zip(readers, sources, strict=True):
            answers = layer(answers, each)
        return self.norm(answers).astype(jnp.float32) @ self.head + self.head_bias


class Embedded(eqx.Module):
    """The embedded input, and the mask of what is not padding."""

    vectors: Float[Array, "input width"]
    mask: Bool[Array, " input"]


def room_for(steps: int) -> int:
    """The next power of two: a value of `most` that keeps the number of compiled programs small.

    >>> [room_for(steps) for steps in (1, 3, 8, 9)]
    [1, 4, 8, 16]
    """
    return 1 << (steps - 1).bit_length()


def sinusoids(positions: Int[Array, " positions"], width: int) -> Float[Array, "positions width"]:
    """Sinusoidal position encodings, at frequencies from 1 to 0.01.

    >>> sinusoids(jnp.arange(3), 4).shape
    (3, 4)
    """
    frequencies = 10.0 ** (-2 * jnp.arange(width // 2) / (width // 2))
    angles = positions[:, None] * frequencies
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def _stack(size: ThinkerSize, key: Key[Array, ""]) -> tuple[Layer, ...]:
    return tuple(Layer(size.width, size.heads, each) for each in jax.random.split(key, size.layers))
