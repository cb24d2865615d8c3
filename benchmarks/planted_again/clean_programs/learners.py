"""Learners that are taught by something that moves: by themselves, by a copy, by an opponent, by rewards."""

from typing import Any

import jax
import jax.numpy as jnp

from lapwing.bench.doctor import clean
from lapwing.task import Task

from .._parts import config, forward, layers


@clean
def policy_with_advantages() -> Any:
    """A policy gradient: advantages are stopped, and standardised over the batch, and the loss is no measure of
    success."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"policy": layers(k1, 4, 24, 3), "value": layers(k2, 4, 24, 1)}

    def data(key: jax.Array, step: Any) -> Any:
        return jax.random.normal(key, (64, 4))

    def loss(params: Any, seen: jax.Array, key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        logp = jax.nn.log_softmax(forward(params["policy"], seen))
        action = jax.random.categorical(k1, logp)
        reward = (action == jnp.argmax(seen[:, :3], 1)) + 0.3 * jax.random.normal(k2, (64,)) + seen[:, 3]
        value = forward(params["value"], seen)[:, 0]
        advantage = jax.lax.stop_gradient(reward - value)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        chosen = jnp.take_along_axis(logp, action[:, None], 1)[:, 0]
        entropy = -jnp.sum(jnp.exp(logp) * logp, 1)
        total = jnp.mean(-chosen * advantage + 0.5 * (value - reward) ** 2 - 0.01 * entropy)
        return total, {"reward": reward.mean()}

    def evaluate(params: Any, key: jax.Array) -> Any:
        seen = data(key, 0)
        return {"right": jnp.mean(forward(params["policy"], seen).argmax(1) == jnp.argmax(seen[:, :3], 1))}

    task = Task(
        init, data, loss, evaluate=evaluate, predict=lambda params, seen: forward(params["policy"], seen)
    )
    return task, config(400)


@clean
def student_of_a_fixed_teacher() -> Any:
    """Distillation: the teacher is among the parameters, so that it is saved with them, and is neither trained nor
    differentiated."""
    k1, k2 = jax.random.split(jax.random.key(3))
    teacher = layers(k1, 5, 48, 4)
    centers = 2 * jax.random.normal(k2, (4, 5))

    def loss(params: Any, x: jax.Array) -> Any:
        taught = jax.lax.stop_gradient(jax.nn.softmax(3 * forward(params["teacher"], x) / 2.0))
        student = jax.nn.log_softmax(forward(params["student"], x) / 2.0)
        return -4.0 * jnp.mean(jnp.sum(taught * student, 1)), {}

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        return centers[jax.random.randint(k1, (48,), 0, 4)] + jax.random.normal(k2, (48, 5))

    task = Task(
        init=lambda key: {"teacher": teacher, "student": layers(key, 5, 16, 4)},
        data=data,
        loss=loss,
        trainable=lambda params: {
            "teacher": jax.tree.map(lambda _: False, params["teacher"]),
            "student": jax.tree.map(lambda _: True, params["student"]),
        },
        predict=lambda params, x: forward(params["student"], x),
    )
    return task, config(400)


@clean
def generator_and_critic_take_turns() -> Any:
    """Two players in one loss: in two of three steps only the critic has a gradient, in the third only the generator,
    and neither loss falls to a minimum."""
    stop = jax.lax.stop_gradient

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"generator": layers(k1, 2, 24, 2), "critic": layers(k2, 2, 24, 1)}

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        angle = jax.random.uniform(k1, (48, 1), maxval=2 * jnp.pi)
        real = jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], 1) + 0.05 * jax.random.normal(k2, (48, 2))
        return {"real": real, "noise": jax.random.normal(k3, (48, 2)), "turn": jnp.asarray(step) % 3}

    def loss(params: Any, batch: Any) -> Any:
        made = forward(params["generator"], batch["noise"])
        fixed = jax.tree.map(stop, params["critic"])
        critic = jnp.mean(jax.nn.softplus(-forward(params["critic"], batch["real"])))
        critic += jnp.mean(jax.nn.softplus(forward(params["critic"], stop(made))))
        generator = jnp.mean(jax.nn.softplus(-forward(fixed, made)))
        return jnp.where(batch["turn"] == 2, generator, critic), {"critic": critic, "generator": generator}

    task = Task(
        init,
        data,
        loss,
        predict=lambda params, batch: forward(params["generator"], batch["noise"]),
        batch_axis={"real": 0, "noise": 0, "turn": None},
    )
    return task, config(400, 2e-3)


@clean
def values_with_a_slow_copy() -> Any:
    """Q-learning: the target is from a copy that follows slowly and is part of the state, the action from the network
    itself; unchosen actions have no gradient."""

    def init(key: jax.Array) -> Any:
        params = layers(key, 4, 32, 3)
        return params, {"slow": params}

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        seen, action = jax.random.normal(k1, (48, 4)), jax.random.randint(k2, (48,), 0, 3)
        after = 0.8 * seen + 0.3 * jax.nn.one_hot(action, 4) + 0.1 * jax.random.normal(k3, (48, 4))
        reward = -jnp.sum(after[:, :3] ** 2, 1)
        done = jax.random.bernoulli(jax.random.fold_in(key, 3), 0.1, (48,))
        return {"seen": seen, "action": action, "reward": reward, "after": after, "done": done}

    def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        best = jnp.argmax(forward(params, batch["after"]), 1)
        rows = jnp.arange(len(best))
        later = forward(state["slow"], batch["after"])[rows, best]
        target = jax.lax.stop_gradient(batch["reward"] + 0.9 * jnp.where(batch["done"], 0, later))
        error = forward(params, batch["seen"])[rows, batch["action"]] - target
        slow = jax.tree.map(
            lambda old, new: 0.98 * old + 0.02 * jax.lax.stop_gradient(new), state["slow"], params
        )
        return jnp.mean(error**2), {}, {"slow": slow}

    return Task(
        init, data, loss, predict=lambda params, batch, state: forward(params, batch["seen"])
    ), config(400)
