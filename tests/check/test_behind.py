"""Targets that are behind their inputs, in several disguises; an echo, and targets that are next, are clean twins."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

from lapwing.check import run_all
from lapwing.task import Task
from tests.slow import some

KINDS, LENGTH = 9, 10


def tokens_of(key: jax.Array) -> jax.Array:
    return jax.random.randint(key, (16, LENGTH + 1), 1, KINDS)


ROLLED = {
    "rolled": lambda t: (t, jnp.roll(t, 1, 1)),
    "rolled twice": lambda t: (t, jnp.roll(t, 2, 1)),
    "swapped": lambda t: (t[:, 1:], t[:, :-1]),
}
RIGHT = {
    "next": lambda t: (t[:, :-1], t[:, 1:]),
    "rolled back": lambda t: (t, jnp.roll(t, -1, 1)),
    "echo": lambda t: (t, jnp.roll(t, 2, 1).at[:, :2].set(0)),
}


def words(pair: Any, counted: slice = slice(None)) -> Task:
    def data(key: jax.Array, step: Any) -> Any:
        x, y = pair(tokens_of(key))
        return {"x": x, "y": y}

    def loss(params: Any, batch: Any) -> Any:
        logits = jnp.cumsum(params["table"][batch["x"]], axis=1) @ params["out"]
        each = optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"])
        return each[:, counted].mean(), {}

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"table": jax.random.normal(k1, (KINDS, 6)), "out": jax.random.normal(k2, (6, KINDS))}

    return Task(init=init, data=data, loss=loss)


def series(pair: Any) -> Task:
    def data(key: jax.Array, step: Any) -> Any:
        x, y = pair(jax.random.normal(key, (16, LENGTH)))
        return {"x": x, "y": y}

    return Task(
        init=lambda key: jnp.ones(2),
        data=data,
        loss=lambda w, b: (jnp.mean((w[0] * jnp.cumsum(b["x"], 1) + w[1] - b["y"]) ** 2), {}),
        targets=lambda b: b["y"],
        time_axis=1,
    )


def found(task: Task) -> bool:
    (outcome,) = run_all(task, only=["labels"])
    assert outcome.result != "error", outcome.detail
    assert outcome.result != "failed" or "which the model has seen already" in outcome.detail, outcome.detail
    return outcome.result == "failed"


@pytest.mark.parametrize("name", some(ROLLED, 0))
def test_targets_that_are_behind_are_found(name: str):
    assert found(words(ROLLED[name]))
    assert found(series(ROLLED[name]))


@pytest.mark.parametrize("name", some(["next", "echo", "rolled back"], 1))
def test_targets_that_are_ahead_and_an_echo_pass(name: str):
    assert not found(words(RIGHT[name]))
    assert not found(series(RIGHT[name]))


def test_an_echo_whose_beginning_does_not_count_passes():
    assert not found(words(lambda t: (t, jnp.roll(t, 2, 1)), counted=slice(2, None)))
