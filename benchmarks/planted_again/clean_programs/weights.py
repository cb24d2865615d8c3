"""Weights that are shared, fixed, or zero at the beginning, and steps that change nothing."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from lapwing.bench.doctor import clean
from lapwing.task import Task

from .._parts import apply, blobs, config, forward, layers, linear, nll, split_rows


@clean
def random_features_that_stay() -> Any:
    """Random Fourier features: frequencies and phases are drawn once and are never trained, only the layer after
    them."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        phase = jax.random.uniform(k2, (128,), maxval=2 * jnp.pi)
        return {"frequency": 1.5 * jax.random.normal(k1, (2, 128)), "phase": phase, "w": jnp.zeros(128)}

    def predict(params: Any, batch: Any) -> jax.Array:
        features = jnp.cos(batch["x"] @ params["frequency"] + params["phase"]) / 8
        return features @ params["w"]

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        x = jax.random.uniform(k1, (64, 2), minval=-1, maxval=1)
        return {"x": x, "y": jnp.sin(3 * x[:, 0]) * x[:, 1] + 0.05 * jax.random.normal(k2, (64,))}

    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        trainable=lambda params: {"frequency": False, "phase": False, "w": True},
        predict=predict,
        targets=lambda batch: batch["y"],
    )
    return task, config(400, 2e-2)


@clean
def adapter_that_begins_with_nothing() -> Any:
    """A low-rank adapter on a fixed network: one of its factors is zero at first, so that the network is not changed,
    and therefore the other has no gradient in the first step."""
    base = layers(jax.random.key(12), 5, 32, 32, 3)

    def init(key: jax.Array) -> Any:
        down = jax.random.normal(key, (32, 4)) / 32**0.5
        return {"base": base, "down": down, "up": jnp.zeros((4, 32)), "head": {"b": jnp.zeros(3)}}

    def predict(params: Any, batch: Any) -> jax.Array:
        first, middle, last = jax.tree.map(jax.lax.stop_gradient, params["base"])
        h = jax.nn.relu(apply(first, batch["x"]))
        h = jax.nn.relu(apply(middle, h) + h @ params["down"] @ params["up"])
        return apply(last, h) + params["head"]["b"]

    def trainable(params: Any) -> Any:
        return {name: jax.tree.map(lambda _, of=name: of != "base", part) for name, part in params.items()}

    task = Task(
        init=init,
        data=lambda key, step: blobs(key, 48),
        loss=lambda params, batch: (nll(predict(params, batch), batch["label"]), {}),
        trainable=trainable,
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=3,
    )
    return task, config(400)


@clean
def one_block_six_times() -> Any:
    """A block is applied six times with the same weights, and four batches make one update: three of four steps change
    nothing, and the warmup begins with a learning rate of zero."""

    def init(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        return {"in": linear(k1, 4, 24), "block": layers(k2, 24, 24, 24), "out": linear(k3, 24, 1)}

    def predict(params: Any, batch: Any) -> jax.Array:
        h = apply(params["in"], batch["x"])
        for _ in range(6):
            h = h + 0.3 * forward(params["block"], jax.nn.standardize(h))
        return apply(params["out"], h)[:, 0]

    def data(key: jax.Array, step: Any) -> Any:
        x = jax.random.normal(key, (16, 4))
        return {"x": x, "y": jnp.sin(x[:, 0]) + x[:, 1] * x[:, 2]}

    warm = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 15, 150)
    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        optimizer=optax.MultiSteps(optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(warm)), 4),
        predict=predict,
        targets=lambda batch: batch["y"],
    )
    return task, config(600, 1e-3)


class Trunk(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        h = nn.Dense(24)(x)
        return nn.relu(nn.BatchNorm(use_running_average=True)(h))


@clean
def statistics_of_an_earlier_training() -> Any:
    """Fine-tuning with few rows: the statistics of batch normalisation are those of the large training, are used in
    training and evaluation alike, and stay as they are on purpose."""
    model, before = Trunk(), np.random.default_rng(0).normal(size=(512, 5)).astype(np.float32) * 1.5
    table = jax.tree.map(np.asarray, blobs(jax.random.key(2), 256))

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        trunk = model.init(k1, jnp.zeros((1, 5)))
        kernel: Any = trunk["params"]["Dense_0"]["kernel"]
        h = before @ kernel
        kept = {"BatchNorm_0": {"mean": h.mean(0), "var": h.var(0)}}
        return {"trunk": trunk["params"], "head": linear(k2, 24, 3)}, {"batch_stats": kept}

    def predict(params: Any, batch: Any, state: Any) -> jax.Array:
        h: Any = model.apply({"params": params["trunk"], **state}, batch["x"])
        return apply(params["head"], h)

    def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        return nll(predict(params, batch, state), batch["label"]), {}, state

    def evaluate(params: Any, batch: Any, state: Any) -> Any:
        logits = predict(params, batch, state)
        return {"loss": nll(logits, batch["label"]), "right": jnp.mean(logits.argmax(1) == batch["label"])}

    task = Task(
        init=init,
        loss=loss,
        evaluate=evaluate,
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=3,
        **split_rows(table, np.arange(256) % 4 > 0),
    )
    return task, config(300)
