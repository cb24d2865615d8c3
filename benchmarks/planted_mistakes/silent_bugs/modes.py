"""Mistakes in modes and keys: training in evaluation, statistics, one key for two things."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import lapwing as lw
from lapwing.task import Task

from .._parts import apply, blobs, config, layers, nll, planted


@planted(
    cause=r"dropout|evaluat|inference|training mode|random|noise|predict",
    sees="the accuracy in evaluation is below that in training, and another number with each key",
)
def dropout_in_evaluation(wrong: bool) -> Any:
    """`train` is True by default, and the evaluation does not say otherwise."""

    def logits(params: Any, x: jax.Array, key: jax.Array, train: bool = True) -> jax.Array:
        h = jax.nn.relu(apply(params[0], x))
        if train:
            h = jnp.where(jax.random.bernoulli(key, 0.5, h.shape), h / 0.5, 0.0)
        return apply(params[1], h)

    def evaluated(params: Any, x: jax.Array, key: jax.Array) -> jax.Array:
        return logits(params, x, key) if wrong else logits(params, x, key, train=False)

    def evaluate(params: Any, key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        batch = blobs(k1, 256)
        answers = evaluated(params, batch["x"], k2)
        right = answers.argmax(-1) == batch["label"]
        return {"loss": nll(answers, batch["label"]), "accuracy": jnp.mean(right)}

    task = Task(
        init=lambda key: layers(key, 5, 32, 3),
        data=lambda key, step: blobs(key),
        loss=lambda params, batch, key: (nll(logits(params, batch["x"], key), batch["label"]), {}),
        evaluate=evaluate,
        predict=lambda params, batch: evaluated(params, batch["x"], jax.random.key(0)),
        targets=lambda batch: batch["label"],
        classes=3,
    )
    return task, config()


class Normed(nnx.Module):
    def __init__(self, momentum: float, rngs: nnx.Rngs):
        self.first, self.out = nnx.Linear(5, 32, rngs=rngs), nnx.Linear(32, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(32, momentum=momentum, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.out(nnx.relu(self.norm(self.first(x))))


@planted(
    cause=r"momentum|average|statistic|decay|batch.?norm|last batch|evaluat",
    sees="the loss in evaluation jumps up and down, that in training does not",
)
def momentum_of_another_library(wrong: bool) -> Any:
    """PyTorch's momentum 0.1 is the weight of the new statistics, Flax's of the old ones: those of the last batch count
    nine tenths."""
    table = jax.tree.map(jnp.asarray, blobs(jax.random.key(9), 512))
    task = lw.task.nnx(
        lambda rngs: Normed(0.1 if wrong else 0.9, rngs),
        lambda model, batch: nll(model(batch["x"]), batch["label"]),
        data=lambda key, step: blobs(key, 8),
        validation=lw.task.Arrays(table, batch_size=128),
        predict=lambda model, batch: model(batch["x"]),
        targets=lambda batch: batch["label"],
        classes=3,
    )
    return task, config()


@planted(
    cause=r"key|same (noise|random|view|number)|identical|twice|equal",
    sees="the contrastive loss is near zero at once, and the features are no better than random ones",
)
def two_views_with_one_key(wrong: bool) -> Any:
    """Both views of an example are augmented with the same key, and are the same."""

    def augmented(x: jax.Array, key: jax.Array) -> jax.Array:
        k1, k2 = jax.random.split(key)
        return x * jax.random.bernoulli(k1, 0.7, x.shape) + 0.3 * jax.random.normal(k2, x.shape)

    def features(params: Any, x: jax.Array) -> jax.Array:
        h = apply(params[1], jax.nn.relu(apply(params[0], x)))
        return h / jnp.sqrt(jnp.sum(h**2, -1, keepdims=True) + 1e-6)

    def loss(params: Any, batch: Any, key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        one = features(params, augmented(batch["x"], k1))
        two = features(params, augmented(batch["x"], k1 if wrong else k2))
        return nll(one @ two.T / 0.2, jnp.arange(len(one))), {}

    task = Task(
        init=lambda key: layers(key, 16, 48, 8),
        data=lambda key, step: {"x": blobs(key, width=16, classes=12, spread=0.4)["x"]},
        loss=loss,
        predict=lambda params, batch: features(params, batch["x"]),
        expected_findings={"batch_independence": "a contrastive loss compares the examples of a batch"},
    )
    return task, config()
