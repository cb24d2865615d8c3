"""Mistakes in losses of reinforcement learning."""

from typing import Any

import jax
import jax.numpy as jnp

from lapwing.task import Task

from .._parts import config, forward, layers, planted


def _actor_critic(key: jax.Array) -> Any:
    k1, k2 = jax.random.split(key)
    return {"actor": layers(k1, 4, 24, 3), "critic": layers(k2, 4, 24, 1)}


def _situations(key: jax.Array, step: Any) -> Any:
    return {"seen": jax.random.normal(key, (64, 4))}


def _played(params: Any, seen: jax.Array, key: jax.Array) -> Any:
    """Actions of the policy, their rewards and log-probabilities."""
    log_p = jax.nn.log_softmax(forward(params["actor"], seen))
    action = jax.random.categorical(key, jax.lax.stop_gradient(log_p))
    reward = (action == jnp.argmax(seen[:, :3], -1)).astype(jnp.float32)
    return jnp.take_along_axis(log_p, action[:, None], 1)[:, 0], reward


def _expected_reward(params: Any, seen: jax.Array) -> jax.Array:
    p = jax.nn.softmax(forward(params["actor"], seen))
    return jnp.take_along_axis(p, jnp.argmax(seen[:, :3], -1)[:, None], 1)[:, 0]


@planted(
    cause=r"actor|no gradient|zero gradient|gradient .*zero|ratio|never (moves|changes)|stop_gradient|cancel",
    sees="the value function improves, the reward does not, and the ratio is exactly 1 all the time",
)
def ratio_of_a_policy_to_itself(wrong: bool) -> Any:
    """The old log-probabilities of PPO are computed with the present parameters and not detached, so the ratio has no
    gradient."""

    def loss(params: Any, batch: Any, key: jax.Array) -> Any:
        log_p, reward = _played(params, batch["seen"], key)
        value = forward(params["critic"], batch["seen"])[:, 0]
        advantage = jax.lax.stop_gradient(reward - value)
        ratio = jnp.exp(log_p - (log_p if wrong else jax.lax.stop_gradient(log_p)))
        clipped = jnp.clip(ratio, 0.8, 1.2)
        policy = -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))
        return policy + 0.5 * jnp.mean((reward - value) ** 2), {"reward": jnp.mean(reward)}

    def evaluate(params: Any, key: jax.Array) -> Any:
        reward = _expected_reward(params, _situations(key, 0)["seen"])
        return {"missed": 1 - jnp.mean(reward)}

    return Task(init=_actor_critic, data=_situations, loss=loss, evaluate=evaluate), config(400, 5e-3)


@planted(
    cause=r"stop_gradient|advantage|critic|detach|value",
    sees="the policy learns, but the values are above every reward that there is",
)
def advantage_moves_the_critic(wrong: bool) -> Any:
    """The advantage is not detached, so the loss of the policy pulls at the critic."""

    def loss(params: Any, batch: Any, key: jax.Array) -> Any:
        log_p, reward = _played(params, batch["seen"], key)
        value = forward(params["critic"], batch["seen"])[:, 0]
        advantage = reward - value if wrong else jax.lax.stop_gradient(reward - value)
        policy = -jnp.mean(log_p * advantage)
        return policy + 0.5 * jnp.mean((reward - value) ** 2), {"reward": jnp.mean(reward)}

    def evaluate(params: Any, key: jax.Array) -> Any:
        seen = _situations(key, 0)["seen"]
        value = forward(params["critic"], seen)[:, 0]
        return {"error of the values": jnp.mean((_expected_reward(params, seen) - value) ** 2)}

    return Task(init=_actor_critic, data=_situations, loss=loss, evaluate=evaluate), config(200, 5e-3)
