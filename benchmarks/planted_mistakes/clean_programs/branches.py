"""Correct programs with parts that are idle in most batches: heads of tasks, experts."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

import lapwing as lw
from lapwing.bench.doctor import clean
from lapwing.task import Task

from .._parts import apply, blobs, config, linear, nll


@clean
def task_that_is_rare() -> Any:
    """Three tasks with a head each share a body; one in fifty examples is of the third, so most batches have none."""

    def init(key: jax.Array) -> Any:
        k1, *heads = jax.random.split(key, 4)
        return {"body": linear(k1, 5, 24), "heads": [linear(k, 24, 1) for k in heads]}

    def predict(params: Any, batch: Any) -> jax.Array:
        h = jnp.tanh(apply(params["body"], batch["x"]))
        outputs = jnp.concatenate([apply(head, h) for head in params["heads"]], -1)
        return jnp.take_along_axis(outputs, batch["task"][:, None], 1)[:, 0]

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        x = jax.random.normal(k1, (24, 5))
        task = jax.random.choice(k2, 3, (24,), p=jnp.array([0.6, 0.38, 0.02]))
        goals = jnp.stack([jnp.sin(x[:, 0]), x[:, 1] * x[:, 2], jnp.abs(x[:, 3])], 1)
        return {"x": x, "task": task, "y": jnp.take_along_axis(goals, task[:, None], 1)[:, 0]}

    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
    )
    return task, config()


class Experts(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> Any:
        scores = nn.Dense(8, name="router")(x)
        best, chosen = jax.lax.top_k(scores, 2)
        weights = jnp.zeros_like(scores).at[jnp.arange(len(x))[:, None], chosen].set(jax.nn.softmax(best))
        up = self.param("up", nn.initializers.lecun_normal(batch_axis=0), (8, 5, 16))
        down = self.param("down", nn.initializers.lecun_normal(batch_axis=0), (8, 16, 3))
        each = jnp.einsum("beh,ehc->bec", nn.gelu(jnp.einsum("bd,edh->beh", x, up)), down)
        used = jnp.mean(weights > 0, 0)
        balance = 8 * jnp.sum(jax.lax.stop_gradient(used) * jax.nn.softmax(scores).mean(0))
        return jnp.einsum("be,bec->bc", weights, each), balance


@clean
def two_of_eight_experts() -> Any:
    """Each example goes to two of eight experts; a loss over the whole batch balances them."""

    def loss(model: Any, batch: Any) -> Any:
        logits, balance = model(batch["x"])
        return nll(logits, batch["label"]) + 0.01 * balance, {"balance": balance}

    task = lw.task.linen(
        Experts(),
        loss,
        jnp.ones((1, 5)),
        data=lambda key, step: blobs(key, 16),
        predict=lambda model, batch: model(batch["x"])[0],
        targets=lambda batch: batch["label"],
        classes=3,
    )
    return task, config()
