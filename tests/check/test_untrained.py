"""Weights that are constants of the model, in disguises, and constants that are meant to be so. Only traced."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing import check
from lapwing.check import CheckError, untrained
from lapwing.task import Task
from tests.slow import some

KEY = jax.random.key(0)
DRAWN = jax.random.normal(KEY, (6, 6)) / 2
X = jax.random.normal(KEY, (5, 16))
W = jax.random.normal(KEY, (16, 6)) / 4
FEATURES = jax.random.normal(jax.random.key(5), (16, 6))
TABLE = np.cos(np.arange(6)[:, None] * (np.arange(6) + 0.5) * np.pi / 6)  # the discrete cosine transform
ROTATION = np.linalg.qr(np.asarray(DRAWN))[0].astype(np.float32)
BIG = jax.random.normal(KEY, (6, 90))


class Closed(eqx.Module):
    first: eqx.nn.Linear
    out: Any


def in_a_function_of_a_module(model: Any, x: jax.Array) -> jax.Array:
    return jax.vmap(lambda row: model.out(jnp.tanh(model.first(row))))(x)


CLOSED = Closed(eqx.nn.Linear(16, 6, key=KEY), lambda h: DRAWN[:, :3].T @ h)


def drawn_in_each_call(w: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w) @ (0.1 * jax.random.normal(jax.random.key(3), (6, 3)))


def in_a_loop(w: jax.Array, x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda h, _: (jnp.tanh(h @ DRAWN[:, :6] / 3), None), x @ w, length=3)[0]


def in_stacked_layers(w: jax.Array, x: jax.Array) -> jax.Array:
    layers = jnp.stack([DRAWN[:, :3], DRAWN[:, 3:]])
    return jax.lax.scan(lambda h, layer: (h + jnp.tanh(h @ layer) @ layer.T, None), x @ w, layers)[0]


def in_a_convolution(w: jax.Array, x: jax.Array) -> jax.Array:
    kernel = jax.random.normal(jax.random.key(4), (8, 1, 3))
    return jax.lax.conv((x @ w)[:, None], kernel, (1,), "SAME")


@pytest.mark.parametrize(
    ("wrong", "params"),
    some(
        [
            (in_a_function_of_a_module, CLOSED),
            (drawn_in_each_call, W),
            (in_a_loop, W),
            (in_stacked_layers, W),
            (in_a_convolution, W),
        ],
        0,
        2,
        3,
    ),
)
def test_weights_that_are_a_constant_are_found_with_their_line(wrong: Any, params: Any):
    with pytest.raises(
        CheckError, match=r"activations at test_untrained.py:\d+ .*are not trained: they are a"
    ):
        untrained(wrong, params, X)


@pytest.mark.parametrize(
    "right",
    [
        lambda w, x: jnp.tanh(x @ w) @ w.T,
        lambda w, x: jnp.tanh(x @ FEATURES) @ w.T,  # random features of the inputs
        lambda w, x: (x @ w) @ jax.lax.stop_gradient(DRAWN),  # declared to be frozen
        lambda w, x: (x @ w) @ TABLE,
        lambda w, x: (x @ w) @ ROTATION,
        lambda w, x: (x @ w) @ (DRAWN @ DRAWN.T),  # a covariance
        lambda w, x: (x @ w) @ jnp.tri(6) / 6,
        lambda w, x: (x @ w) * DRAWN[0],
        lambda w, x: jnp.tanh(x @ w) @ BIG,  # a large model that is frozen, of which a small part is trained
    ],
)
def test_constants_that_are_no_weights_or_are_frozen_on_purpose_pass(right: Any):
    untrained(right, W, X)


def test_run_all_examines_the_prediction_and_not_a_network_of_the_loss():
    def predict(params: Any, batch: Any) -> jax.Array:
        return jnp.tanh(batch @ params["w"]) @ params["out"]

    task = Task(
        init=lambda key: {"w": W, "out": FEATURES.T},
        data=lambda key, step: jax.random.normal(key, (8, 16)),
        loss=lambda params, x: (
            jnp.mean(((predict(params, x) - x) @ DRAWN[:4, :5]) ** 2),
            {},
        ),  # a perceptual loss
        predict=predict,
        optimizer=optax.sgd,
    )
    (found,) = check.run_all(task, only=["untrained"])
    assert found.result == "passed"
