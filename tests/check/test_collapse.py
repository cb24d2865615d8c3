"""Outputs that may become one point: losses of pairs of outputs, some of which may, and others that only look so."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

from lapwing.check import run_all
from lapwing.task import Task


def outcome(task: Task, name: str, **options: Any) -> tuple[str, str]:
    (found,) = run_all(task, only=[name], **options)
    return found.result, found.detail


def views(compare: Any, shift: float = 0.0, labels: Any = None) -> Task:
    mixing = jax.random.normal(jax.random.key(7), (3, 10))

    def init(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        shapes = zip((k1, k2, k3), ((10, 24), (24, 6), (6, 6)), strict=True)
        return [*(jax.random.normal(k, shape) / shape[0] ** 0.5 for k, shape in shapes), jnp.zeros(6)]

    def encode(params: Any, x: jax.Array) -> jax.Array:
        return jax.nn.relu(x @ params[0]) @ params[1] + params[3]

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        x = jax.random.normal(k1, (16, 3)) @ mixing
        one, two = (x + 0.4 * jax.random.normal(k, x.shape) for k in (k2, k3))
        return {"one": one, "two": two + shift} | {name: of(x) for name, of in (labels or {}).items()}

    def loss(params: Any, batch: Any) -> Any:
        return compare(params, encode(params, batch["one"]), encode(params, batch["two"]), batch), {}

    return Task(init=init, data=data, loss=loss, predict=lambda params, b: encode(params, b["one"]))


def unit(z: jax.Array) -> jax.Array:
    return z / (jnp.linalg.norm(z, axis=1, keepdims=True) + 1e-6)


def simsiam(stop: Any) -> Any:
    return lambda params, one, two, batch: -jnp.mean(jnp.sum(unit(one @ params[2]) * unit(stop(two)), 1))


def squares(params: Any, one: jax.Array, two: jax.Array, batch: Any) -> jax.Array:
    return jnp.mean((one - two) ** 2)


def contrastive(params: Any, one: jax.Array, two: jax.Array, batch: Any) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(5 * unit(one) @ unit(two).T, jnp.arange(16)).mean()


def denoising(params: Any, one: jax.Array, two: jax.Array, batch: Any) -> jax.Array:
    return jnp.mean((one @ params[1].T @ params[0].T - batch["two"]) ** 2)


def weighted(params: Any, one: jax.Array, two: jax.Array, batch: Any) -> jax.Array:
    return jnp.mean(jnp.sum((one - two) ** 2, 1) * batch["weight"])


def siamese(params: Any, one: jax.Array, two: jax.Array, batch: Any) -> jax.Array:
    return jnp.mean((jnp.sum((one - two) ** 2, 1) - batch["distance"]) ** 2)


def bilinear(params: Any, one: jax.Array, two: jax.Array, batch: Any) -> jax.Array:
    score = jnp.sum((one @ params[2]) * two, 1)
    return jnp.mean(optax.sigmoid_binary_cross_entropy(score, batch["is_pair"]))


def ranked(params: Any, one: jax.Array, two: jax.Array, batch: Any) -> jax.Array:
    return jnp.mean(jax.nn.softplus(two[:, 0] - one[:, 0]))


def critic(params: Any, one: jax.Array, two: jax.Array, batch: Any) -> jax.Array:
    return jnp.mean(two[:, 0] - one[:, 0]) + 0.01 * sum(jnp.sum(leaf**2) for leaf in params)


def metric(params: Any, one: jax.Array, two: jax.Array, batch: Any) -> jax.Array:
    near = jnp.sum(unit(batch["one"]) * unit(batch["two"]), 1)
    return jnp.mean((jnp.sum(one * two, 1) - near) ** 2)


@pytest.mark.parametrize(
    "task",
    [
        views(simsiam(lambda z: z)),
        views(squares),
        views(weighted, labels={"weight": lambda x: jnp.ones(len(x))}),
    ],
    ids=["simsiam", "squares", "weighted"],
)
def test_views_that_may_meet_in_one_point_are_found(task: Task):
    result, detail = outcome(task, "targets")
    assert result == "failed"
    assert detail.startswith("the outputs can collapse: the loss compares outputs with each other")


@pytest.mark.parametrize(
    "right",
    [simsiam(jax.lax.stop_gradient), contrastive, denoising],
    ids=["simsiam", "contrastive", "denoising"],
)
def test_views_that_are_kept_apart_pass(right: Any):
    assert outcome(views(right), "targets")[0] != "failed"


@pytest.mark.parametrize(
    "task",
    [
        views(siamese, labels={"distance": lambda x: 3 + 0.1 * x[:, 0]}),
        views(bilinear, labels={"is_pair": lambda x: (x[:, 0] > 0).astype(x.dtype)}),
        views(ranked, shift=1.0),
        views(critic, shift=1.0),
        views(metric),
    ],
    ids=["siamese", "bilinear", "ranked", "critic", "metric"],
)
def test_comparisons_that_have_labels_or_an_order_pass(task: Task):
    assert outcome(task, "targets")[0] != "failed"


def test_a_collapse_is_looked_for_if_there_is_time_for_it():
    assert outcome(views(squares), "targets", budget_s=0.01)[0] != "failed"
