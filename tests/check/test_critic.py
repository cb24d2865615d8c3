"""Advantages that move the critic, in several disguises, and clean twins."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from lapwing.check import CheckError, numbers

KEY = jax.random.key(0)
PARAMS = {"actor": jax.random.normal(KEY, (4, 3)), "critic": jax.random.normal(KEY, (4,))}
BATCH = {
    "seen": jax.random.normal(KEY, (12, 4)),
    "next": jax.random.normal(jax.random.key(1), (12, 4)),
    "action": jnp.arange(12) % 3,
    "reward": jnp.linspace(0, 1, 12),
}


def log_p(p: Any, b: Any) -> jax.Array:
    return jnp.take_along_axis(jax.nn.log_softmax(b["seen"] @ p["actor"]), b["action"][:, None], 1)[:, 0]


def reinforce(p: Any, b: Any, stop: Any) -> jax.Array:
    value = b["seen"] @ p["critic"]
    policy = -jnp.mean(log_p(p, b) * stop(b["reward"] - value))
    return policy + 0.5 * jnp.mean((value - b["reward"]) ** 2)


def one_hot(p: Any, b: Any, stop: Any) -> jax.Array:
    value = b["seen"] @ p["critic"]
    error = b["reward"] - value
    chosen = jnp.sum(jax.nn.log_softmax(b["seen"] @ p["actor"]) * jax.nn.one_hot(b["action"], 3), -1)
    return jnp.mean(jnp.square(error)) - jnp.mean(stop(error) * chosen)


def temporal_difference(p: Any, b: Any, stop: Any) -> jax.Array:
    value, after = b["seen"] @ p["critic"], b["next"] @ p["critic"]
    goal = jax.lax.stop_gradient(b["reward"] + 0.9 * after)
    advantage = b["reward"] + 0.9 * after - value
    advantage = (advantage - 0.1) / 2
    return jnp.mean((value - goal) ** 2 - log_p(p, b) * stop(advantage))


@pytest.mark.parametrize("loss", [reinforce, one_hot, temporal_difference])
def test_an_advantage_that_is_not_detached_is_found(loss: Any):
    numbers(lambda p, b: loss(p, b, jax.lax.stop_gradient), PARAMS, BATCH)
    with pytest.raises(CheckError, match=r"an advantage that is not detached \(test_critic.py:\d+\)"):
        numbers(lambda p, b: loss(p, b, lambda x: x), PARAMS, BATCH)


def two_tasks(p: Any, b: Any) -> jax.Array:
    """Classes, and a regression whose size weighs nothing."""
    return -log_p(p, b).mean() + jnp.mean((b["seen"] @ p["critic"] - b["reward"]) ** 2)


def weighed(p: Any, b: Any) -> jax.Array:
    """Learned weights of two tasks."""
    size = jnp.exp(p["critic"][0])
    return -size * log_p(p, b).mean() + jnp.mean((b["seen"] @ p["critic"] - b["reward"]) ** 2)


@pytest.mark.parametrize("loss", [two_tasks, weighed])
def test_losses_of_two_parts_pass(loss: Any):
    numbers(loss, PARAMS, BATCH)
