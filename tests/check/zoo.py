"""Twelve usual small models of Equinox and Flax: nothing is wrong with them, and every check must pass."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

BATCH, LENGTH, WIDTH = 4, 5, 6
RANDOM = np.random.default_rng(0)
VECTORS = RANDOM.normal(size=(BATCH, WIDTH)).astype(np.float32)
SEQUENCES = RANDOM.normal(size=(BATCH, LENGTH, WIDTH)).astype(np.float32)
IMAGES = RANDOM.normal(size=(BATCH, 6, 6, 2)).astype(np.float32)
WORDS = RANDOM.integers(0, 9, (BATCH, LENGTH))


class Animal(NamedTuple):
    """A model of a whole batch, its inputs, and whether its outputs depend on no later inputs."""

    build: Callable[[], Any]
    inputs: np.ndarray
    causal: bool = False

    def make(self) -> Any:
        """One model for all tests: a check leaves it unchanged."""
        return _made(self.build)

    @property
    def batches(self) -> list[dict[str, np.ndarray]]:
        y = np.random.default_rng(1).normal(size=(2, BATCH)).astype(np.float32)
        return [{"x": self.inputs, "y": y[0]}, {"x": np.roll(self.inputs, 1, axis=-1), "y": y[1]}]


@functools.cache
def _made(build: Callable[[], Any]) -> Any:
    return build()


def loss(model: Any, batch: dict[str, Any]) -> jax.Array:
    """The squared difference of the mean of an example's outputs, through a tanh, and a number."""
    outputs = model(batch["x"])
    return jnp.mean((jnp.mean(jnp.tanh(outputs).reshape(BATCH, -1), axis=1) - batch["y"]) ** 2)


class Batched(eqx.Module):
    """An Equinox model of one example, over a batch."""

    one: Any

    def __call__(self, x: Any) -> jax.Array:
        return jax.vmap(self.one)(x)


class Recurrent(eqx.Module):
    cell: Any
    out: eqx.nn.Linear

    def __call__(self, x: jax.Array) -> jax.Array:
        lstm = isinstance(self.cell, eqx.nn.LSTMCell)
        start = (jnp.zeros(8), jnp.zeros(8)) if lstm else jnp.zeros(8)

        def step(h: Any, x: jax.Array) -> Any:
            h = self.cell(x, h)
            return h, h[0] if lstm else h

        return jax.vmap(self.out)(jax.lax.scan(step, start, x)[1])


class Attending(eqx.Module):
    embed: eqx.nn.Embedding
    attention: eqx.nn.MultiheadAttention
    norm: eqx.nn.LayerNorm
    drop: eqx.nn.Dropout

    def __call__(self, words: jax.Array) -> jax.Array:
        x = jax.vmap(self.embed)(words)
        mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
        return jax.vmap(self.norm)(x + self.drop(self.attention(x, x, x, mask=mask), inference=True))


class Seeing(eqx.Module):
    conv: eqx.nn.Conv2d
    norm: eqx.nn.GroupNorm
    pool: eqx.nn.AvgPool2d
    out: eqx.nn.Linear

    def __call__(self, image: jax.Array) -> jax.Array:
        x = self.pool(jax.nn.relu(self.norm(self.conv(jnp.moveaxis(image, -1, 0)))))
        return self.out(x.ravel())


def key(number: int) -> jax.Array:
    return jax.random.key(number)


def recurrent(cell: Any) -> Batched:
    return Batched(Recurrent(cell(WIDTH, 8, key=key(0)), eqx.nn.Linear(8, 3, key=key(1))))


def attending() -> Batched:
    return Batched(
        Attending(
            eqx.nn.Embedding(9, 8, key=key(0)),
            eqx.nn.MultiheadAttention(2, 8, key=key(1)),
            eqx.nn.LayerNorm(8),
            eqx.nn.Dropout(0.1),
        )
    )


def seeing() -> Batched:
    return Batched(
        Seeing(
            eqx.nn.Conv2d(2, 4, 3, key=key(0)),
            eqx.nn.GroupNorm(2, 4),
            eqx.nn.AvgPool2d(2, 2),
            eqx.nn.Linear(16, 3, key=key(1)),
        )
    )


class FlaxPerceptron(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(WIDTH, 8, rngs=rngs)
        self.norm = nnx.LayerNorm(8, rngs=rngs)
        self.drop = nnx.Dropout(0.2, rngs=rngs)
        self.out = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x: Any) -> jax.Array:
        return self.out(self.drop(nnx.gelu(self.norm(self.first(x)))))


class FlaxSeeing(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.conv = nnx.Conv(2, 4, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.out = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x: Any) -> jax.Array:
        x = nnx.max_pool(nnx.relu(self.norm(self.conv(x))), (2, 2), (2, 2))
        return self.out(x.mean(axis=(1, 2)))


class FlaxAttending(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.embed = nnx.Embed(9, 8, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, 8, decode=False, rngs=rngs)
        self.norm = nnx.RMSNorm(8, rngs=rngs)

    def __call__(self, words: Any) -> jax.Array:
        x = self.embed(words)
        return self.norm(x + self.attention(x, mask=nnx.make_causal_mask(words)))


def flax(model: Any) -> Any:
    """A Flax model as it is used, not trained: running statistics, no dropout."""
    model.eval()
    return model


def rngs() -> nnx.Rngs:
    return nnx.Rngs(0)


ZOO = {
    "equinox MLP": Animal(lambda: Batched(eqx.nn.MLP(WIDTH, 3, 8, 2, key=key(0))), VECTORS),
    "equinox GRU": Animal(lambda: recurrent(eqx.nn.GRUCell), SEQUENCES, causal=True),
    "equinox LSTM": Animal(lambda: recurrent(eqx.nn.LSTMCell), SEQUENCES, causal=True),
    "equinox attention": Animal(attending, WORDS, causal=True),
    "equinox convolution": Animal(seeing, IMAGES),
    "flax perceptron": Animal(lambda: flax(FlaxPerceptron(rngs())), VECTORS),
    "flax convolution": Animal(lambda: flax(FlaxSeeing(rngs())), IMAGES),
    "flax GRU": Animal(lambda: nnx.RNN(nnx.GRUCell(WIDTH, 8, rngs=rngs())), SEQUENCES, causal=True),
    "flax LSTM": Animal(lambda: nnx.RNN(nnx.LSTMCell(WIDTH, 8, rngs=rngs())), SEQUENCES, causal=True),
    "flax attention": Animal(lambda: flax(FlaxAttending(rngs())), WORDS, causal=True),
    # Its second factor begins at zero, so the first has no gradient at the start.
    "flax LoRA": Animal(lambda: nnx.LoRALinear(WIDTH, 3, lora_rank=2, rngs=rngs()), VECTORS),
    "flax sequential": Animal(
        lambda: nnx.Sequential(nnx.Linear(WIDTH, 8, rngs=rngs()), nnx.swish, nnx.Linear(8, 3, rngs=rngs())),
        VECTORS,
    ),
}
