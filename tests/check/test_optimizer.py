"""Optimizers whose parts are in the wrong order, decay with the wrong sign, or count twice; and target networks."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing import check
from lapwing.check import CheckError
from lapwing.task import Task
from lapwing.train import FitConfig
from tests.slow import some

PARAMS = {"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}
COSINE = optax.cosine_decay_schedule(1e-2, 1000)
CLIP = optax.clip_by_global_norm(1.0)
DECAY = optax.add_decayed_weights(0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        optax.chain(optax.adam(1e-3), CLIP),
        optax.chain(optax.scale_by_rms(), optax.clip(0.1), optax.scale(-1e-3)),
        optax.MultiSteps(optax.chain(optax.chain(optax.scale_by_lion(), CLIP), optax.scale(-1.0)), 2),
    ],
)
def test_clipping_after_the_scaling_is_found(wrong: Any):
    with pytest.raises(CheckError, match=r"clip\w* comes after scale_by_\w+: it clips the updates"):
        check.optimizer(wrong, PARAMS)


def test_decay_with_the_wrong_sign_is_found_and_that_of_biases_reported():
    with pytest.raises(
        CheckError, match=r"moves params\['b'\]; params\['w'\] away from zero: its weight decay has"
    ):
        check.optimizer(optax.chain(optax.sgd(1e-2), DECAY), PARAMS)
    report = check.optimizer(optax.adamw(1e-3), PARAMS)
    assert report.message.startswith("1 of 2 leaves are biases or norms and decay too: params['b']")
    matrices = optax.adamw(1e-3, mask=lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params))
    assert check.optimizer(matrices, PARAMS).message == "1 of 2 leaves decay"


@pytest.mark.parametrize(
    ("wrong", "more"),
    [
        (
            optax.chain(
                optax.scale_by_adam(), optax.scale_by_schedule(COSINE), optax.scale_by_learning_rate(COSINE)
            ),
            [],
        ),
        (optax.adam(COSINE), [COSINE]),
        (optax.sgd(COSINE), [lambda step: 3 * COSINE(step)]),
    ],
)
def test_a_schedule_that_is_applied_twice_is_found(wrong: Any, more: Any):
    with pytest.raises(CheckError, match="a schedule is applied twice, so that its factor is squared"):
        check.optimizer(wrong, PARAMS, schedules=more)


def test_a_schedule_that_counts_twice_is_found():
    inner = optax.adam(COSINE)

    def update(gradient: Any, state: Any, params: Any = None) -> Any:
        _, state = inner.update(gradient, state, params)
        return inner.update(gradient, state, params)

    with pytest.raises(CheckError, match="after 4 updates a schedule has counted 8: it is too fast"):
        check.optimizer(optax.GradientTransformation(inner.init, update), PARAMS)  # pyright: ignore


@pytest.mark.parametrize(
    ("right", "more"),
    [
        (optax.chain(CLIP, optax.adamw(COSINE, weight_decay=0.1)), []),
        (optax.chain(optax.scale_by_schedule(optax.linear_schedule(0.0, 1.0, 50)), optax.adam(COSINE)), []),
        (optax.adafactor(1e-3), [COSINE]),
        (optax.partition({"a": optax.adam(COSINE), "b": optax.sgd(1e-2)}, {"w": "a", "b": "b"}), []),
        pytest.param(optax.noisy_sgd(1e-2, key=0), [], marks=pytest.mark.slow),
        pytest.param(optax.MultiSteps(optax.lamb(COSINE), 2), [], marks=pytest.mark.slow),
    ],
    ids=["adamw", "warm-up", "adafactor", "partition", "noisy", "lamb"],
)
def test_usual_optimizers_pass(right: Any, more: Any):
    check.optimizer(right, PARAMS, schedules=more)


def test_a_state_that_is_not_restored_is_named():
    optimizer = optax.adam(1e-1)

    def step(state: Any, x: Any) -> Any:
        slope = jax.grad(lambda w: jnp.sum((w * x - 1) ** 2))(state["w"])
        update, opt = optimizer.update(slope, state["opt"])
        return {"w": state["w"] + update, "opt": opt}, {}

    start = {"w": jnp.ones(2), "opt": optimizer.init(jnp.ones(2))}
    batches = [jnp.arange(2.0) + n for n in range(4)]
    check.resume(step, start, batches, lambda state: jax.tree.map(np.array, state))
    losing = [
        lambda state: state | {"opt": optimizer.init(state["w"])},
        lambda state: state | {"w": state["w"].astype(jnp.bfloat16).astype(jnp.float32)},
        lambda state: (
            state | {"opt": (state["opt"][0]._replace(count=jnp.zeros((), jnp.int32)), *state["opt"][1:])}
        ),
    ]
    for restore, name in zip(losing, [r"state\['opt'\]\[0\].count", r"state\['w'\]", "count"], strict=True):
        with pytest.raises(CheckError, match=rf"differs from one that is not: .*{name}.* was not restored"):
            check.resume(step, start, batches, restore)


def line(key: Any, step: Any) -> dict[str, jax.Array]:
    x = jax.random.normal(key, (8, 3))
    return {"x": x, "y": x.sum(1), "mask": (jnp.arange(8) < 5).astype(jnp.float32)}


def masked(p: Any, b: Any) -> Any:
    return jnp.sum((b["x"] @ p["w"] - b["y"]) ** 2 * b["mask"]) / jnp.sum(b["mask"]), {}


TASK = Task(init=lambda key: {"w": jnp.zeros(3)}, data=line, loss=masked)


@pytest.mark.slow
def test_accumulation_that_is_not_the_full_batch_is_found_in_a_run():
    config = FitConfig(accumulate=2)
    (found,) = check.run_all(TASK, config, only=["optimizer"])
    assert found.result == "failed"
    assert found.detail.startswith(
        "the mean gradient of 2 parts of a batch is not that of the batch: params['w'] is off"
    )
    mean = dataclasses.replace(
        TASK, loss=lambda p, b: (masked(p, b | {"mask": jnp.ones(len(b["x"]))})[0], {})
    )
    (found,) = check.run_all(mean, config, only=["optimizer"])
    assert found.result == "passed", found.detail


def q_loss(stop: Any) -> Any:
    def loss(p: Any, b: Any) -> Any:
        goal = b["y"] + 0.9 * jnp.tanh(b["x"] @ stop(p["target"]))
        return jnp.mean((b["x"] @ p["online"] - goal) ** 2), {}

    return loss


@pytest.mark.parametrize("name", some(["target", "ema_model", "teacher"], 0))
def test_a_target_network_that_is_trained_is_found(name: str):
    def renamed(stop: Any) -> Any:
        return lambda p, b: q_loss(stop)({"online": p["online"], "target": p[name]}, b)

    both = Task(
        init=lambda key: {"online": jnp.ones(3), name: jnp.ones(3)}, data=line, loss=renamed(lambda x: x)
    )
    (found,) = check.run_all(both, only=["targets"])
    assert found.result == "failed"
    assert found.detail.startswith(f"a gradient reaches what is called a target: params['{name}']")
    stopped = dataclasses.replace(both, loss=renamed(jax.lax.stop_gradient))
    frozen = dataclasses.replace(both, trainable=lambda params: {"online": True, name: False})
    for right in (stopped, frozen):
        assert check.run_all(right, only=["targets"])[0].result == "passed"


def test_parameters_that_are_only_called_so_are_no_target_network():
    embedding = Task(
        init=lambda key: {"w": jnp.ones(3), "target_embedding": jnp.ones((2, 2))},
        data=line,
        loss=lambda p, b: (jnp.mean((b["x"] @ p["w"] + p["target_embedding"].sum()) ** 2), {}),
    )
    assert check.run_all(embedding, only=["targets"])[0].result == "not applicable"


def test_copies_that_drift_apart_are_found():
    def step(w: Any, x: Any, averaged: bool) -> Any:
        slope = jax.grad(lambda w: jnp.mean((w * x - 1) ** 2))(w)
        mean, rate = jnp.mean(x, 0), jax.lax.pmean(slope, "device") if averaged else slope
        return {"w": w - 0.1 * rate, "mean": jax.lax.pmean(mean, "device") if averaged else mean}

    xs = jax.random.normal(jax.random.key(0), (2, 4, 3))
    over = jax.vmap(step, in_axes=(None, 0, None), axis_name="device")
    check.devices(over(jnp.ones(3), xs, True), axis=0)
    with pytest.raises(
        CheckError, match=r"\['mean'\] differs between devices 0 and 1, by .* \(also: \['w'\]\)"
    ):
        check.devices(over(jnp.ones(3), xs, False), axis=0)
    with pytest.raises(check.CheckInputError, match="nothing is replicated"):
        check.devices({"w": jnp.ones(3)})
