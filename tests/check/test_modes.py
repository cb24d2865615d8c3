"""Models in the wrong mode, written in plain JAX, Equinox and Flax, and in the right one. Nothing is compiled."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from lapwing import check
from lapwing.task import Task, equinox
from lapwing.task import nnx as nnx_task
from tests.slow import some

KEY = jax.random.key(0)


def data(key: Any, step: Any) -> dict[str, jax.Array]:
    x = jax.random.normal(key, (8, 4))
    return {"x": x, "y": x.sum(1)}


VALIDATION = [data(jax.random.key(9), 0)]


def found(task: Task, name: str = "modes") -> check.Outcome:
    (outcome,) = check.run_all(task, only=[name])
    return outcome


def plain(p: Any, x: Any, key: Any) -> jax.Array:
    h = jnp.tanh(x @ p["w"])
    return (h if key is None else jnp.where(jax.random.bernoulli(key, 0.8, h.shape), h / 0.8, 0)) @ p["v"]


PLAIN = Task(
    init=lambda key: {"w": jax.random.normal(key, (4, 4)), "v": jnp.ones(4)},
    data=data,
    loss=lambda p, b, key: (jnp.mean((plain(p, b["x"], key) - b["y"]) ** 2), {}),
)


@pytest.mark.parametrize(
    "wrong",
    [
        {"validation": VALIDATION},
        {"predict": lambda p, b: plain(p, b["x"], jax.random.key(0))},
        {"evaluate": lambda p, key: {"mean": jnp.mean(plain(p, jnp.ones((2, 4)), key))}},
    ],
    ids=["validation", "predict", "evaluate"],
)
def test_dropout_in_an_evaluation_is_found(wrong: Any):
    outcome = found(dataclasses.replace(PLAIN, **wrong))
    assert outcome.result == "failed"
    assert "sets outputs of the model to zero with them at test_modes.py:" in outcome.detail


@pytest.mark.parametrize(
    "right",
    some(
        [
            {
                "validation": VALIDATION,
                "evaluate": lambda p, b: {"loss": jnp.mean((plain(p, b["x"], None) - b["y"]) ** 2)},
            },
            {"predict": lambda p, b: plain(p, b["x"], None)},
            {
                "evaluate": lambda p, key: {
                    "mean": jnp.mean(plain(p, 1.0 * jax.random.bernoulli(key, 0.5, (2, 4)), None))
                }
            },
        ],
        0,
    ),
    ids=["validation", "predict", "random bits as inputs"],
)
def test_an_evaluation_without_dropout_passes(right: Any):
    outcome = found(dataclasses.replace(PLAIN, **right))
    assert outcome.result == "passed", outcome.detail


def test_dropout_that_is_off_in_training_is_found():
    off = dataclasses.replace(
        PLAIN, loss=lambda p, b, key: (jnp.mean((plain(p, b["x"], None) - b["y"]) ** 2), {})
    )
    outcome = found(off)
    assert outcome.result == "failed"
    assert outcome.detail.startswith("the loss takes a key, and nothing in it depends on that")


class Normed(eqx.Module):
    layer: eqx.nn.Linear
    norm: eqx.nn.BatchNorm

    def __call__(self, x: Any, state: Any) -> Any:
        x, state = self.norm(self.layer(x), state)
        return x.sum(), state


def normed(key: Any) -> Any:
    return eqx.nn.make_with_state(
        lambda: Normed(eqx.nn.Linear(4, 4, key=key), eqx.nn.BatchNorm(4, "batch", mode="batch"))
    )()


def on_batch(model: Any, x: Any, state: Any) -> Any:
    return jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)


def normed_loss(model: Any, b: Any, state: Any, key: Any) -> Any:
    outputs, state = on_batch(model, b["x"], state)
    return jnp.mean((outputs - b["y"]) ** 2), {}, state


def test_statistics_that_are_never_updated_are_found():
    def in_inference(model: Any, b: Any, state: Any, key: Any) -> Any:
        return normed_loss(eqx.nn.inference_mode(model), b, state, key)

    def forgets(model: Any, b: Any, state: Any, key: Any) -> Any:
        return *normed_loss(model, b, state, key)[:2], state

    assert found(equinox(normed, normed_loss, data=data)).result == "passed"
    for wrong in (in_inference, forgets):
        outcome = found(equinox(normed, wrong, data=data))
        assert (outcome.result, outcome.detail[:60]) == (
            "failed",
            "a step of training changes none of the statistics state[<flat"[:60],
        )


class FlaxNormed(nnx.Module):
    def __init__(self, rngs: Any, frozen: bool = False):
        self.layer = nnx.Linear(4, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, use_running_average=frozen, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.norm(self.layer(x)).sum(1)


def flax_loss(model: Any, b: Any) -> Any:
    return jnp.mean((model(b["x"]) - b["y"]) ** 2)


def test_the_statistics_of_a_flax_model_are_read_in_evaluation_and_updated_in_training():
    def predict(model: Any, b: Any) -> Any:
        return model(b["x"])

    def as_in_training(model: Any, b: Any) -> Any:
        model.train()
        return model(b["x"])

    right = nnx_task(FlaxNormed, flax_loss, data=data, predict=predict)
    outcome = found(right)
    assert outcome.result == "passed", outcome.detail
    outcome = found(nnx_task(FlaxNormed, flax_loss, data=data, predict=as_in_training))
    assert outcome.result == "failed"
    assert "normalizes with those of its own batch" in outcome.detail
    outcome = found(nnx_task(lambda rngs: FlaxNormed(rngs, frozen=True), flax_loss, data=data))
    assert outcome.result == "failed"
    assert "a step of training changes none of the statistics state['norm']['mean']" in outcome.detail
