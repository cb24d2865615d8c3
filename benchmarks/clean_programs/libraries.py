"""Correct programs: models of Equinox, Flax Linen and Flax NNX, as the libraries' guides write them."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import linen
from flax import nnx as flax_nnx

from benchmarks.silent_bugs._parts import CLASSES, VOCABULARY, clusters, cross_entropy, next_tokens
from lapwing.bench.doctor import clean
from lapwing.task import Task, equinox, nnx
from lapwing.task import linen as linen_task


def _images(key: jax.Array, step: Any) -> dict[str, jax.Array]:
    """Noise with a bright quarter, whose place is the class."""
    k1, k2 = jax.random.split(key)
    y = jax.random.randint(k1, (16,), 0, 4)
    row, column = jnp.arange(8)[:, None] // 4, jnp.arange(8) // 4
    bright = (2 * row + column) == y[:, None, None]
    return {"x": (bright + 0.3 * jax.random.normal(k2, (16, 8, 8)))[..., None], "y": y}


_LABELED: dict[str, Any] = {"targets": lambda batch: batch["y"], "classes": CLASSES}
_POINTS: dict[str, Any] = {"data": lambda key, step: clusters(key), **_LABELED}
_PICTURES: dict[str, Any] = {"data": _images, **_LABELED}


@clean
def equinox_perceptron() -> Task:
    """Its activation is a function in the module."""
    return equinox(
        lambda key: eqx.nn.MLP(6, CLASSES, 16, 2, activation=jax.nn.gelu, key=key),
        lambda model, batch: cross_entropy(jax.vmap(model)(batch["x"]), batch["y"]),
        predict=lambda model, batch: jax.vmap(model)(batch["x"]),
        **_POINTS,
    )


class Convolutions(eqx.Module):
    layers: list[Callable]

    def __init__(self, key: jax.Array):
        k1, k2 = jax.random.split(key)
        self.layers = [
            eqx.nn.Conv2d(1, 4, 3, key=k1),
            eqx.nn.MaxPool2d(2, 2),
            jax.nn.relu,
            jnp.ravel,
            eqx.nn.Linear(36, CLASSES, key=k2),
        ]

    def __call__(self, x: jax.Array) -> jax.Array:
        x = jnp.moveaxis(x, -1, 0)
        for layer in self.layers:
            x = layer(x)
        return x


@clean
def equinox_convolutions() -> Task:
    return equinox(
        Convolutions,
        lambda model, batch: cross_entropy(jax.vmap(model)(batch["x"]), batch["y"]),
        predict=lambda model, batch: jax.vmap(model)(batch["x"]),
        **_PICTURES,
    )


class Reader(eqx.Module):
    cell: eqx.nn.GRUCell
    out: eqx.nn.Linear

    def __init__(self, key: jax.Array):
        k1, k2 = jax.random.split(key)
        self.cell, self.out = eqx.nn.GRUCell(3, 8, key=k1), eqx.nn.Linear(8, 1, key=k2)

    def __call__(self, xs: jax.Array) -> jax.Array:
        last, _ = jax.lax.scan(lambda h, x: (self.cell(x, h), None), jnp.zeros(8), xs)
        return self.out(last)[0]


@clean(held_out=True)
def equinox_recurrent() -> Task:
    def data(key: jax.Array, step: Any) -> Any:
        x = jax.random.normal(key, (16, 10, 3))
        return {"x": x, "y": jnp.tanh(x[:, :, 0].sum(1))}

    return equinox(
        Reader,
        lambda model, batch: jnp.mean((jax.vmap(model)(batch["x"]) - batch["y"]) ** 2),
        data=data,
        predict=lambda model, batch: jax.vmap(model)(batch["x"]),
        targets=lambda batch: batch["y"],
    )


class Block(eqx.Module):
    embed: eqx.nn.Embedding
    place: jax.Array
    attention: eqx.nn.MultiheadAttention
    norm: eqx.nn.LayerNorm
    drop: eqx.nn.Dropout
    out: eqx.nn.Linear

    def __init__(self, key: jax.Array):
        keys = jax.random.split(key, 4)
        self.embed = eqx.nn.Embedding(VOCABULARY, 16, key=keys[0])
        self.place = 0.5 * jax.random.normal(keys[1], (8, 16))
        self.attention = eqx.nn.MultiheadAttention(2, 16, key=keys[2])
        self.norm, self.drop = eqx.nn.LayerNorm(16), eqx.nn.Dropout(0.1)
        self.out = eqx.nn.Linear(16, VOCABULARY, key=keys[3])

    def __call__(self, tokens: jax.Array, key: jax.Array | None = None) -> jax.Array:
        x = jax.vmap(self.embed)(tokens) + self.place
        mask = jnp.tril(jnp.ones((8, 8), bool))
        x = x + self.drop(self.attention(x, x, x, mask=mask), key=key)
        return jax.vmap(self.out)(jax.vmap(self.norm)(x))


@clean
def equinox_transformer() -> Task:
    def loss(model: Any, batch: Any, key: jax.Array) -> Any:
        keys = jax.random.split(key, len(batch["inputs"]))
        return cross_entropy(jax.vmap(model)(batch["inputs"], keys), batch["targets"])

    return equinox(
        Block,
        loss,
        data=next_tokens,
        predict=lambda model, batch: jax.vmap(model)(batch["inputs"]),
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["targets"],
        classes=VOCABULARY,
    )


class WithStatistics(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    out: eqx.nn.Linear

    def __init__(self, key: jax.Array):
        k1, k2 = jax.random.split(key)
        self.first, self.out = eqx.nn.Linear(6, 16, key=k1), eqx.nn.Linear(16, CLASSES, key=k2)
        self.norm = eqx.nn.BatchNorm(16, axis_name="batch", mode="batch")

    def __call__(self, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        x, state = self.norm(self.first(x), state)
        return self.out(jnp.tanh(x)), state


def _batched(model: Any, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
    return jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)


@clean
def equinox_batch_normalization() -> Task:
    def loss(model: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        logits, state = _batched(model, batch["x"], state)
        return cross_entropy(logits, batch["y"]), {}, state

    return equinox(
        lambda key: eqx.nn.make_with_state(WithStatistics)(key),
        loss,
        predict=lambda model, batch, state: _batched(model, batch["x"], state)[0],
        **_POINTS,
    )


class LinenPerceptron(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> jax.Array:
        return linen.Dense(CLASSES)(linen.LayerNorm()(linen.relu(linen.Dense(16)(x))))


@clean(held_out=True)
def linen_perceptron() -> Task:
    return linen_task(
        LinenPerceptron(),
        lambda model, batch: cross_entropy(model(batch["x"]), batch["y"]),
        jnp.ones((1, 6)),
        predict=lambda model, batch: model(batch["x"]),
        **_POINTS,
    )


class LinenConvolutions(linen.Module):
    @linen.compact
    def __call__(self, x: Any, train: bool = True) -> jax.Array:
        x = linen.Conv(4, (3, 3))(x)
        x = linen.relu(linen.BatchNorm(use_running_average=not train, momentum=0.9)(x))
        x = linen.avg_pool(x, (4, 4), (4, 4)).reshape(len(x), -1)
        return linen.Dense(CLASSES)(linen.Dropout(0.1, deterministic=not train)(x))


@clean
def linen_convolutions() -> Task:
    return linen_task(
        LinenConvolutions(),
        lambda model, batch: cross_entropy(model(batch["x"]), batch["y"]),
        jnp.ones((1, 8, 8, 1)),
        predict=lambda model, batch: model(batch["x"]),
        **_PICTURES,
    )


class LinenRecurrent(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> jax.Array:
        x = linen.RNN(linen.OptimizedLSTMCell(8))(x)
        return linen.Dense(1)(x[:, -1])[:, 0]


@clean
def linen_recurrent() -> Task:
    def data(key: jax.Array, step: Any) -> Any:
        x = jax.random.normal(key, (16, 8, 2))
        return {"x": x, "y": jnp.tanh(x[..., 0].sum(1))}

    return linen_task(
        LinenRecurrent(),
        lambda model, batch: jnp.mean((model(batch["x"]) - batch["y"]) ** 2),
        jnp.ones((1, 8, 2)),
        data=data,
        predict=lambda model, batch: model(batch["x"]),
    )


class NnxPerceptron(flax_nnx.Module):
    def __init__(self, rngs: flax_nnx.Rngs):
        self.first = flax_nnx.Linear(6, 16, rngs=rngs)
        self.norm = flax_nnx.BatchNorm(16, rngs=rngs)
        self.drop = flax_nnx.Dropout(0.1, rngs=rngs)
        self.out = flax_nnx.Linear(16, CLASSES, rngs=rngs)

    def __call__(self, x: Any) -> jax.Array:
        return self.out(self.drop(flax_nnx.relu(self.norm(self.first(x)))))


@clean(held_out=True)
def nnx_perceptron() -> Task:
    return nnx(
        NnxPerceptron,
        lambda model, batch: cross_entropy(model(batch["x"]), batch["y"]),
        predict=lambda model, batch: model(batch["x"]),
        **_POINTS,
    )


class NnxAttention(flax_nnx.Module):
    def __init__(self, rngs: flax_nnx.Rngs):
        self.embed = flax_nnx.Embed(VOCABULARY, 16, rngs=rngs)
        self.place = flax_nnx.Embed(8, 16, rngs=rngs)
        self.attention = flax_nnx.MultiHeadAttention(2, 16, decode=False, rngs=rngs)
        self.norm = flax_nnx.RMSNorm(16, rngs=rngs)
        self.out = flax_nnx.Linear(16, VOCABULARY, rngs=rngs)

    def __call__(self, tokens: Any) -> jax.Array:
        x = self.embed(tokens) + self.place(jnp.arange(8))
        return self.out(self.norm(x + self.attention(x, mask=flax_nnx.make_causal_mask(tokens))))


@clean
def nnx_attention() -> Task:
    return nnx(
        NnxAttention,
        lambda model, batch: cross_entropy(model(batch["inputs"]), batch["targets"]),
        data=next_tokens,
        predict=lambda model, batch: model(batch["inputs"]),
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["targets"],
        classes=VOCABULARY,
    )
