"""The adding problem (Hochreiter and Schmidhuber 1997): a GRU reads numbers, two of them marked, and outputs their sum.

A model that ignores its inputs predicts 1 and has a mean squared error of 1/6 = 0.167; to do better, it must remember
the first marked number until the second.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from lapwing.loops import scan
from lapwing.task import Task
from lapwing.train import FitConfig, check_option

BASELINE = 1 / 6
BATCH_AXIS = (1, 0)  # Of the inputs, whose first axis is time, and of the sums.
_EVALUATED = 1000

Params = Mapping[str, jax.Array]


@dataclass(frozen=True)
class Config(FitConfig):
    """A GRU learns to add two marked numbers of a sequence."""

    steps: int = 1500
    learning_rate: float = 5e-3
    clip: float = 1.0
    length: int = 30
    """numbers in a sequence"""
    width: int = 32
    """units of the GRU"""
    batch_size: int = 64
    """sequences in a batch"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option(self, "length", self.length >= 2, "at least 2, one number to mark in each half")
        for name in ("width", "batch_size"):
            check_option(self, name, getattr(self, name) >= 1, "at least 1")


def build(config: Config) -> Task:
    def init(key: jax.Array) -> Params:
        return _init(key, config.width)

    def batch(key: jax.Array, step: jax.Array) -> Any:
        return sequences(key, config.batch_size, config.length)

    def loss(params: Params, batch: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        inputs, sums = batch
        return jnp.mean((predict(params, inputs) - sums) ** 2), {}

    def evaluate(params: Params, key: jax.Array) -> dict[str, jax.Array]:
        return {"loss": loss(params, sequences(key, _EVALUATED, config.length))[0]}

    return Task(
        init=jax.jit(init),
        data=batch,
        loss=loss,
        evaluate=evaluate,
        batch_axis=BATCH_AXIS,
        predict=lambda params, batch: predict(params, batch[0]),
        targets=lambda batch: batch[1],
    )


def model(config: Config, params: Params) -> Callable[[jax.Array], jax.Array]:
    """The trained network: a function of inputs of shape length × count × 2 that returns the sums."""
    return functools.partial(predict, params)


def sequences(
    key: Key[Array, ""], count: int, length: int
) -> tuple[Float[Array, "length count 2"], Float[Array, " count"]]:
    """Random numbers with marks, one in each half of the sequence, and the sums of the marked numbers."""
    numbers_key, first_key, second_key = jax.random.split(key, 3)
    numbers = jax.random.uniform(numbers_key, (length, count))
    first = jax.random.randint(first_key, (count,), 0, length // 2)
    second = jax.random.randint(second_key, (count,), length // 2, length)
    times = jnp.arange(length)[:, None]
    marks = jnp.where((times == first) | (times == second), 1.0, 0.0)
    return jnp.stack([numbers, marks], axis=-1), jnp.sum(numbers * marks, axis=0)


def predict(params: Params, inputs: Float[Array, "length count 2"]) -> Float[Array, " count"]:
    """The predicted sums."""

    def step(hidden: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
        return _gru(params, hidden, x), None

    hidden = jnp.zeros((inputs.shape[1], params["out"].shape[0]))
    hidden, _ = scan(step, hidden, inputs)
    return hidden @ params["out"] + params["out_bias"]


def _gru(params: Params, hidden: jax.Array, x: jax.Array) -> jax.Array:
    from_x = x @ params["in"] + params["bias"]
    from_hidden = hidden @ params["recurrent"]
    x_reset, x_update, x_new = jnp.split(from_x, 3, axis=-1)
    h_reset, h_update, h_new = jnp.split(from_hidden, 3, axis=-1)
    reset = jax.nn.sigmoid(x_reset + h_reset)
    update = jax.nn.sigmoid(x_update + h_update)
    new = jnp.tanh(x_new + reset * h_new)
    return (1 - update) * new + update * hidden


def _init(key: jax.Array, width: int) -> Params:
    in_key, recurrent_key, out_key = jax.random.split(key, 3)
    scale = width**-0.5
    return {
        "in": scale * jax.random.normal(in_key, (2, 3 * width)),
        "recurrent": scale * jax.random.normal(recurrent_key, (width, 3 * width)),
        "bias": jnp.zeros(3 * width),
        "out": scale * jax.random.normal(out_key, (width,)),
        "out_bias": jnp.zeros(()),
    }
