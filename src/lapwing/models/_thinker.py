"""A small transformer that thinks in steps: a few latent vectors read the input and their own past, again and again.

In each step the latents attend to [memory | input | latents], and what they have become is put into the memory. All
steps have the same weights and are one `lw.scan`. Then learned queries, one for each place of the answer, attend to the
memory (and to the input, unless it is hidden), and say all of the answer at once.

A step knows of no later one. So one computation of the longest thinking gives what is said after fewer steps too, by a
mask: the number of steps can be an array that changes without compiling anything again.
"""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from lapwing.core import LapwingError

from ._attention import Source
from ._layer import Layer, Norm, normal, offers
from ._memory import empty
from ._thinking import Seen, Thinking, think

_PAD = 0
_SPREAD = 0.7  # Of tokens and latents: about that of the sines which tell places and times.


class ThinkerError(LapwingError, ValueError):
    """A size of a thinker that makes no sense."""


@dataclass(frozen=True)
class ThinkerSize:
    """How large a thinker is.

    >>> ThinkerSize(width=30, heads=4)
    Traceback (most recent call last):
    lapwing.models._thinker.ThinkerError: model.width should be a multiple of the heads (4), but is 30
    """

    latents: int = 4
    """vectors that think"""
    steps: int = 2
    """times that they do"""
    heads: int = 4
    """of each attention"""
    width: int = 64
    """of each vector"""
    layers: int = 2
    """of attention and feed-forward in each step, and again in reading the answer"""
    slots: int = 0
    """of the memory, in multiples of the latents; the oldest thoughts are given up when it is full; 0: room for all"""
    hide_input_after: int | None = None
    """the input is hidden after this step, the first being 0, and when the answer is read"""
    tied: bool = False
    """the answer is read with the weights of thinking, instead of its own"""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """of the computation; parameters, norms and the weights of attention are float32 always"""

    def __post_init__(self) -> None:
        for name in ("latents", "steps", "heads", "width", "layers"):
            self._check(name, getattr(self, name) >= 1, "at least 1")
        self._check("width", self.width % self.heads == 0, f"a multiple of the heads ({self.heads})")
        self._check("width", self.width % 2 == 0, "even")
        fits = self.slots >= 0 and self.slots % self.latents == 0
        self._check("slots", fits, f"a multiple of the latents ({self.latents}), or 0 for room for all")
        hides = self.hide_input_after
        self._check("hide_input_after", hides is None or hides >= 0, "at least 0: someone must see the input")

    def _check(self, name: str, good: bool, expected: str) -> None:
        if not good:
            raise ThinkerError(f"model.{name} should be {expected}, but is {getattr(self, name)}")


class Thinker(eqx.Module):
    """Answers one sequence of tokens with another, of which token 0 is no part.

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
    norm: Norm
    head: Float[Array, "width vocabulary"]
    head_bias: Float[Array, " vocabulary"]

    def __init__(self, size: ThinkerSize, vocabulary: int, inputs: int, outputs: int, key: Key[Array, ""]):
        of_tokens, of_latents, of_layers, of_readers, of_head = jax.random.split(key, 5)
        width = size.width
        self.size = size
        self.embedding = _SPREAD * jax.random.normal(of_tokens, (vocabulary, width))
        self.places = waves(jnp.arange(inputs), width)
        self.latents = _SPREAD * jax.random.normal(of_latents, (size.latents, width))
        self.clock = jnp.ones(width)
        self.layers = _stack(size, of_layers)
        self.queries = waves(jnp.arange(outputs), width)
        self.readers = () if size.tied else _stack(size, of_readers)
        self.norm = Norm(width)
        self.head = normal(of_head, (width, vocabulary), width)
        self.head_bias = jnp.zeros(vocabulary)

    def __call__(
        self,
        tokens: Int[Array, " input"],
        outputs: int,
        steps: Int[Array, ""] | int | None = None,
        most: int | None = None,
    ) -> Float[Array, "outputs vocabulary"]:
        """The logits of the answer after `steps` steps of thinking, `size.steps` unless told.

        `steps` may be an array; `most` is then how many there may be, and only another `most` is compiled anew.
        """
        x = self.embed(tokens)
        thoughts = self.think(x, most or self.size.steps)
        return self.read(x, thoughts, outputs, (self.size.steps if steps is None else steps) - 1)

    def at_every_step(
        self, tokens: Int[Array, " input"], outputs: int
    ) -> Float[Array, "steps outputs vocabulary"]:
        """The logits after one step of thinking, after two, and so on."""
        x = self.embed(tokens)
        thoughts = self.think(x, self.size.steps)
        return jax.vmap(lambda step: self.read(x, thoughts, outputs, step))(jnp.arange(self.size.steps))

    def embed(self, tokens: Int[Array, " input"]) -> "Embedded":
        """The input as vectors."""
        vectors = jnp.asarray(self.embedding)[tokens] + self.places[: tokens.shape[0]]
        return Embedded(vectors.astype(self.size.dtype), tokens != _PAD)

    def think(
        self, x: "Embedded", steps: int, shown: Bool[Array, " steps"] | None = None
    ) -> Float[Array, "steps latents width"]:
        """What the latents were after each step. `shown` says in which steps the input is seen, if not as usual."""
        size = self.size
        layers = [layer.ready(size.dtype) for layer in self.layers]
        if shown is None:
            hides = steps if size.hide_input_after is None else size.hide_input_after
            shown = jnp.arange(steps) <= hides
        memory = empty(
            size.layers,
            min(size.slots or steps * size.latents, steps * size.latents),
            size.heads,
            size.width // size.heads,
            size.dtype,
        )
        thinking = Thinking(
            layers=layers,
            of_input=offers(layers, x.vectors),
            times=(waves(jnp.arange(steps), size.width) * self.clock).astype(size.dtype),
            first=self.latents.astype(size.dtype),
            memory=memory.layers,
        )
        return think(thinking, Seen(x.real, shown))

    def read(
        self,
        x: "Embedded",
        thoughts: Float[Array, "steps latents width"],
        outputs: int,
        step: Int[Array, ""] | int,
    ) -> Float[Array, "outputs vocabulary"]:
        """The logits of the answer from what was in the memory after a step, the first being 0."""
        size = self.size
        ages = step - jnp.arange(thoughts.shape[0])
        kept = (size.slots or thoughts.shape[0] * size.latents) // size.latents
        seen = jnp.repeat((ages >= 0) & (ages < kept), size.latents)
        past = thoughts.reshape(-1, size.width)
        answers = self.queries[:outputs].astype(size.dtype)
        readers = [layer.ready(size.dtype) for layer in self.readers or self.layers]
        sources = [[Source(offer, seen)] for offer in offers(readers, past)]
        if size.hide_input_after is None:
            for each, offer in zip(sources, offers(readers, x.vectors), strict=True):
                each.append(Source(offer, x.real))
        for layer, each in zip(readers, sources, strict=True):
            answers = layer(answers, each)
        return self.norm(answers).astype(jnp.float32) @ self.head + self.head_bias


class Embedded(eqx.Module):
    """An input as vectors, and which of them are real and not padding."""

    vectors: Float[Array, "input width"]
    real: Bool[Array, " input"]


def room_for(steps: int) -> int:
    """The next power of two: a size for `most`, so that few are compiled whatever the numbers of steps.

    >>> [room_for(steps) for steps in (1, 3, 8, 9)]
    [1, 4, 8, 16]
    """
    return 1 << (steps - 1).bit_length()


def waves(places: Int[Array, " places"], width: int) -> Float[Array, "places width"]:
    """Sines and cosines of the places, at frequencies from fast to slow."""
    frequencies = 10.0 ** (-2 * jnp.arange(width // 2) / (width // 2))
    angles = places[:, None] * frequencies
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def _stack(size: ThinkerSize, key: Key[Array, ""]) -> tuple[Layer, ...]:
    return tuple(Layer(size.width, size.heads, each) for each in jax.random.split(key, size.layers))
