"""Logarithms of probabilities with a small number, in several disguises; where they do no harm, they pass."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from lapwing.check import CheckError, numbers
from tests.slow import some

KEY = jax.random.key(0)
W = jax.random.normal(KEY, (5, 4))
BATCH = {"x": jax.random.normal(jax.random.key(1), (32, 5)), "y": jnp.arange(32) % 4}


def added(logits: Any, y: Any) -> jax.Array:
    return -jnp.mean(jnp.sum(jnp.log(jax.nn.softmax(logits) + 1e-6) * jax.nn.one_hot(y, 4), -1))


def clipped(logits: Any, y: Any) -> jax.Array:
    p = jnp.clip(jax.nn.softmax(logits), 1e-7, 1 - 1e-7)
    return -jnp.mean(jnp.log(p[jnp.arange(len(y)), y]))


def kept_above(logits: Any, y: Any) -> jax.Array:
    p = jnp.take_along_axis(jax.nn.softmax(logits), y[:, None], 1)
    return -jnp.mean(jnp.log(jnp.maximum(p, 1e-8)))


def sigmoid(logits: Any, y: Any) -> jax.Array:
    return -jnp.mean(jnp.where(y == 0, jnp.log(jax.nn.sigmoid(logits[:, 0]) + 1e-7), 0))


@pytest.mark.parametrize("of", some([added, clipped, kept_above, sigmoid], 1, 2))
def test_a_floor_that_hides_underflow_is_found(of: Any):
    def loss(temperature: float) -> Any:
        return lambda w, b: of(b["x"] @ w / temperature, b["y"])

    numbers(loss(1.0), W, BATCH)
    with pytest.raises(
        CheckError, match=r"the logarithm at test_floored.py:\d+ is taken of a s\w+ with a floor"
    ):
        numbers(loss(0.02), W, BATCH)


def test_an_entropy_needs_no_gradient_where_nothing_is_likely():
    def loss(w: Any, b: Any) -> jax.Array:
        logits = b["x"] @ w / 0.02
        p = jax.nn.softmax(logits)
        entropy = -jnp.sum(p * jnp.log(p + 1e-8), -1)
        return jnp.mean(jax.nn.logsumexp(logits, -1) - logits[:, 0]) - 0.01 * entropy.mean()

    numbers(loss, W, BATCH)
