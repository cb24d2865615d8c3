"""Losses that are written wrongly, each in three disguises, and their clean twins. Nothing is compiled."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

from lapwing.check import CheckError, numbers

KEY = jax.random.key(0)
PARAMS = {"w": jax.random.normal(KEY, (4, 3)), "b": jnp.zeros(3)}
BATCH = {"x": jax.random.normal(KEY, (8, 4)), "y": jnp.arange(8) % 3}
BY_LABEL = optax.softmax_cross_entropy_with_integer_labels


def logits(p: Any, b: Any) -> jax.Array:
    return b["x"] @ p["w"] + p["b"]


def hot(b: Any) -> jax.Array:
    return jax.nn.one_hot(b["y"], 3)


def picked(odds: jax.Array, b: Any) -> jax.Array:
    return -jnp.mean(jnp.take_along_axis(odds, b["y"][:, None], 1))


def softmax_by_hand(x: jax.Array) -> jax.Array:
    odds = jnp.exp(x - x.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)


def running_sum(p: Any, b: Any, dtype: Any) -> jax.Array:
    terms = (p["b"][0] + jnp.ones(300)).astype(dtype)
    total, _ = jax.lax.scan(lambda total, x: (total + x, None), jnp.zeros((), dtype), terms)
    return total.astype(jnp.float32)


WRONG = {
    "taken of probabilities": [
        lambda p, b: BY_LABEL(jax.nn.softmax(logits(p, b)), b["y"]).mean(),
        lambda p, b: picked(jax.nn.log_softmax(softmax_by_hand(logits(p, b)) / 0.7), b),
        lambda p, b: optax.sigmoid_binary_cross_entropy(jax.nn.sigmoid(logits(p, b)), hot(b)).mean(),
    ],
    "arguments of the loss are swapped": [
        lambda p, b: optax.softmax_cross_entropy(hot(b), logits(p, b)).mean(),
        lambda p, b: optax.sigmoid_binary_cross_entropy(hot(b), logits(p, b)).mean(),
        lambda p, b: -jnp.mean(jnp.sum(logits(p, b) * jax.nn.log_softmax(hot(b)), -1)),
    ],
    "the logarithm at .* is taken of a (softmax|sigmoid)": [
        lambda p, b: picked(jnp.log(jax.nn.softmax(logits(p, b))), b),
        lambda p, b: -jnp.mean(jnp.log(softmax_by_hand(logits(p, b))[jnp.arange(8), b["y"]])),
        lambda p, b: -jnp.mean((1 - hot(b)) * jnp.log(1 - jax.nn.sigmoid(logits(p, b)))),
    ],
    "is taken along the examples": [
        lambda p, b: picked(jax.nn.log_softmax(logits(p, b), axis=0), b),
        lambda p, b: (
            -jnp.mean(
                jnp.sum(hot(b) * (logits(p, b) - jax.scipy.special.logsumexp(logits(p, b), axis=0)), -1)
            )
        ),
        lambda p, b: jnp.mean((jax.nn.softmax(logits(p, b).T).T - hot(b)) ** 2),
    ],
    r"broadcast against each other: \[8, 1\] with \[8\] is \[8, 8\]": [
        lambda p, b: jnp.mean((logits(p, b)[:, :1] - b["x"][:, 0]) ** 2),
        lambda p, b: jnp.mean(optax.huber_loss(logits(p, b)[:, :1] - b["x"][:, 0])),
        lambda p, b: jnp.mean(jnp.abs(b["x"][:, 0] - logits(p, b)[:, :1])),
    ],
    r"outputs or losses, and weights or targets, are broadcast against each other: \[8, 1\] with \[8\]": [
        lambda p, b: jnp.mean(b["x"][:, :1] ** 2 * optax.huber_loss(logits(p, b)[:, 0], b["x"][:, 0])),
        lambda p, b: jnp.mean((logits(p, b)[:, 0] - b["x"][:, 0]) ** 2 * jnp.abs(b["x"][:, :1])),
        lambda p, b: jnp.sum(b["x"][:, :1] * jnp.tanh(logits(p, b)[:, 0])) / 64,
    ],
    "is computed in b?float16 at .*, which keeps": [
        lambda p, b: running_sum(p, b, jnp.bfloat16),
        lambda p, b: running_sum(p, b, jnp.float16),
        lambda p, b: jnp.cumsum(jnp.ones(300, jnp.bfloat16) * p["b"][0].astype(jnp.bfloat16))[-1].astype(
            float
        ),
    ],
    r"divided as integers at .* 3 different values become 1": [
        lambda p, b: jnp.mean((logits(p, b)[:, 0] - (b["y"] // 255).astype(float)) ** 2),
        lambda p, b: jnp.mean((logits(p, b)[:, 0] - 2.0 * (b["y"] // 3)) ** 2),
        lambda p, b: jnp.mean(jnp.tanh(logits(p, b)[:, 0] * jnp.floor_divide(b["y"], 16))),
    ],
}
RIGHT = {
    "cross-entropy": lambda p, b: BY_LABEL(logits(p, b), b["y"]).mean(),
    "by hand": lambda p, b: picked(jax.nn.log_softmax(logits(p, b)), b),
    "one-hot": lambda p, b: optax.softmax_cross_entropy(logits(p, b), hot(b)).mean(),
    "sigmoid": lambda p, b: optax.sigmoid_binary_cross_entropy(logits(p, b), hot(b)).mean(),
    "with an epsilon": lambda p, b: picked(jnp.log(jax.nn.softmax(logits(p, b)) + 1e-8), b),
    "squares": lambda p, b: jnp.mean((logits(p, b)[:, 0] - b["x"][:, 0]) ** 2),
    "distillation": lambda p, b: optax.losses.kl_divergence(
        jax.nn.log_softmax(logits(p, b)), jax.nn.softmax(b["x"][:, :3])
    ).mean(),
    "contrastive": lambda p, b: BY_LABEL(logits(p, b) @ logits(p, b).T, jnp.arange(len(b["x"]))).mean(),
    "attention": lambda p, b: jnp.mean(jax.nn.softmax(jax.nn.softmax(logits(p, b)) @ p["w"].T) @ p["w"]),
    "wide sum": lambda p, b: running_sum(p, b, jnp.float32),
    "buckets": lambda p, b: jnp.mean((logits(p, b)[:, 0] - (7 * b["y"] // 2)) ** 2),
    "pairs": lambda p, b: jnp.mean((logits(p, b)[:, None] - logits(p, b)[None]) ** 2),
}


@pytest.mark.parametrize(("message", "disguise"), [(message, n) for message in WRONG for n in range(3)])
def test_a_loss_that_is_written_wrongly_is_found_with_its_line(message: str, disguise: int):
    with pytest.raises(CheckError, match=message) as caught:
        numbers(WRONG[message][disguise], PARAMS, BATCH)
    assert "test_numbers.py:" in str(caught.value)


@pytest.mark.parametrize("name", RIGHT)
def test_a_loss_that_is_written_well_passes(name: str):
    numbers(RIGHT[name], PARAMS, BATCH)


def test_models_of_equinox_and_flax_are_read():
    class Flax(nnx.Module):
        def __init__(self):
            self.layer = nnx.Linear(4, 3, rngs=nnx.Rngs(0))

        def __call__(self, x: Any) -> Any:
            return self.layer(x)

    equinox = eqx.nn.Linear(4, 3, key=KEY)
    for model, call in ((Flax(), lambda m, x: m(x)), (equinox, lambda m, x: jax.vmap(m)(x))):
        numbers(lambda m, b, call=call: BY_LABEL(call(m, b["x"]), b["y"]).mean(), model, BATCH)
        with pytest.raises(CheckError, match="taken of probabilities"):
            numbers(
                lambda m, b, call=call: BY_LABEL(jax.nn.softmax(call(m, b["x"])), b["y"]).mean(), model, BATCH
            )
