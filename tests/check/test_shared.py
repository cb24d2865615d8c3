"""Dropout and noise that all examples of a batch share, in disguises, and as it should be. Traced, and drawn once."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from flax import linen

from lapwing import check
from lapwing.task import Task
from tests.slow import some

KEY = jax.random.key(0)
DROP = eqx.nn.Dropout(0.5)


def hidden(params: Any, x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ params["w"])


def task(model: Any) -> Task:
    def loss(params: Any, x: jax.Array, key: jax.Array) -> Any:
        return jnp.mean((model(params, x, key) @ params["w"].T - x) ** 2), {}

    return Task(
        init=lambda key: {"w": jax.random.normal(key, (4, 6))},
        data=lambda key, step: jax.random.normal(key, (8, 4)),
        loss=loss,
    )


def outcome(model: Any) -> check.Outcome:
    (found,) = check.run_all(task(model), only=["keys"])
    return found


def not_split(p: Any, x: jax.Array, key: jax.Array) -> jax.Array:
    return jax.vmap(lambda row, key: DROP(hidden(p, row), key=key), in_axes=(0, None))(x, key)


def repeated(p: Any, x: jax.Array, key: jax.Array) -> jax.Array:
    keys = jnp.broadcast_to(key, len(x))
    return jax.vmap(lambda row, key: DROP(hidden(p, row), key=key))(x, keys)


def of_one_row(p: Any, x: jax.Array, key: jax.Array) -> jax.Array:
    h = hidden(p, x)
    return h * jax.random.bernoulli(key, 0.8, h.shape[-1:]) / 0.8


def broadcast_by_flax(p: Any, x: jax.Array, key: jax.Array) -> jax.Array:
    layer = linen.Dropout(0.5, broadcast_dims=(0,), deterministic=False)
    return layer.apply({}, hidden(p, x), rngs={"dropout": key})  # pyright: ignore


def one_latent(p: Any, x: jax.Array, key: jax.Array) -> jax.Array:
    h = hidden(p, x)
    return h + jnp.exp(0.1 * h) * jax.random.normal(key, (h.shape[-1],))


def in_layers(p: Any, x: jax.Array, key: jax.Array) -> jax.Array:
    def layer(h: jax.Array, key: jax.Array) -> Any:
        return jax.vmap(lambda row: DROP(jnp.tanh(row), key=key))(h), None

    return jax.lax.scan(layer, hidden(p, x), jax.random.split(key, 3))[0]


WRONG = [not_split, repeated, of_one_row, broadcast_by_flax, one_latent, in_layers]


@pytest.mark.parametrize("model", some(WRONG, 1, 3, 5))
def test_random_numbers_that_all_examples_share_are_found(model: Any):
    found = outcome(model)
    assert found.result == "failed"
    assert found.detail.startswith("all examples share the same random numbers: the ")
    assert "test_shared.py:" in found.detail


def split(p: Any, x: jax.Array, key: jax.Array) -> jax.Array:
    return jax.vmap(lambda row, key: DROP(hidden(p, row), key=key))(x, jax.random.split(key, len(x)))


def of_the_batch(p: Any, x: jax.Array, key: jax.Array) -> jax.Array:
    return DROP(hidden(p, x), key=key)


def of_weights(p: Any, x: jax.Array, key: jax.Array) -> jax.Array:
    return jnp.tanh(x @ (p["w"] * jax.random.bernoulli(key, 0.8, p["w"].shape)))  # DropConnect


def of_a_layer(p: Any, x: jax.Array, key: jax.Array) -> jax.Array:
    h = hidden(p, x)
    return h + jnp.where(jax.random.bernoulli(key, 0.5), jnp.sin(h), 0.0)  # a whole layer or nothing


def own_latents(p: Any, x: jax.Array, key: jax.Array) -> jax.Array:
    h = hidden(p, x)
    return h + jnp.exp(0.1 * h) * jax.random.normal(key, h.shape)


def split_in_layers(p: Any, x: jax.Array, key: jax.Array) -> jax.Array:
    def layer(h: jax.Array, key: jax.Array) -> Any:
        return DROP(jnp.tanh(h), key=key), None

    return jax.lax.scan(layer, hidden(p, x), jax.random.split(key, 3))[0]


def mixed(p: Any, x: jax.Array, key: jax.Array) -> jax.Array:
    share = jax.random.beta(key, 0.4, 0.4)
    return share * hidden(p, x) + (1 - share) * hidden(p, x[::-1])  # mixup


@pytest.mark.parametrize(
    "model", some([split, of_the_batch, of_weights, of_a_layer, own_latents, split_in_layers, mixed], 1, 3, 5)
)
def test_random_numbers_of_each_example_or_of_the_weights_pass(model: Any):
    found = outcome(model)
    assert found.result == "passed", found.detail
