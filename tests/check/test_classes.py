"""Labels counted from one and marks that count, in several disguises, and clean twins."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing.check import CheckError, CheckInputError, labels, run_all
from lapwing.task import Task
from tests.slow import some

KEY = jax.random.key(0)
W = jax.random.normal(KEY, (4, 3))
X = jax.random.normal(KEY, (24, 4))
Y = jnp.arange(24) % 3
MARKED = jnp.where(jnp.arange(24) % 4 == 0, -1, Y)


def cross_entropy(w: Any, b: Any) -> jax.Array:
    return optax.softmax_cross_entropy(b["x"] @ w, jax.nn.one_hot(b["y"], 3)).mean()


def smoothed(w: Any, b: Any) -> jax.Array:
    goal = optax.smooth_labels(jax.nn.one_hot(b["y"], 3), 0.1)
    return -jnp.sum(jax.nn.log_softmax(b["x"] @ w) * goal) / len(goal)


def brier(w: Any, b: Any) -> jax.Array:
    return jnp.mean((jax.nn.softmax(b["x"] @ w) - (b["y"][:, None] == jnp.arange(3))) ** 2)


def each_sigmoid(w: Any, b: Any) -> jax.Array:
    return optax.sigmoid_binary_cross_entropy(b["x"] @ w, jax.nn.one_hot(b["y"], 3)).mean()


def clipped(w: Any, b: Any) -> jax.Array:
    log_p = jax.nn.log_softmax(b["x"] @ w)
    return -jnp.mean(jnp.take_along_axis(log_p, b["y"][:, None], 1, mode="clip"))


def of(loss: Any, y: Any) -> str:
    try:
        return labels(loss, W, {"x": X, "y": y}).message
    except CheckInputError as reason:
        return str(reason)


@pytest.mark.parametrize("loss", some([cross_entropy, smoothed, brier, each_sigmoid, clipped], 1, 4))
def test_labels_counted_from_one_are_found(loss: Any):
    of(loss, Y)
    of(loss, MARKED) if loss is not clipped else None
    of(loss, jnp.where(jnp.arange(24) % 4 == 0, 3, Y))  # a mark that is no class, beside class 0
    with pytest.raises(
        CheckError, match=r"the labels are 1 to 3, where 3 classes are 0 to 2 .* class 3 is out of"
    ):
        of(loss, Y + 1)


def indexed(w: Any, b: Any, weighted: bool) -> jax.Array:
    each = -jnp.take_along_axis(jax.nn.log_softmax(b["x"] @ w), b["y"][:, None], 1)[:, 0]
    return jnp.sum(each * (b["y"] >= 0)) / jnp.sum(b["y"] >= 0) if weighted else each.mean()


def by_optax(w: Any, b: Any, weighted: bool) -> jax.Array:
    each = optax.softmax_cross_entropy_with_integer_labels(b["x"] @ w, b["y"])
    return jnp.where(b["y"] < 0, 0, each).mean() if weighted else each.mean()


@pytest.mark.parametrize("loss", some([indexed, by_optax], 0))
def test_marks_that_count_as_the_last_class_are_found(loss: Any):
    of(lambda w, b: loss(w, b, True), MARKED)
    with pytest.raises(CheckError, match="6 of 24 labels are -1, and the loss counts them as class 2 of 3"):
        of(lambda w, b: loss(w, b, False), MARKED)


def test_features_counted_from_one_are_no_labels():
    table = jnp.ones((3, 2))
    of(lambda w, b: jnp.mean((jax.nn.one_hot(b["y"], 3) @ table) ** 2) + jnp.sum(w**2), Y + 1)


@pytest.mark.parametrize("by", some([0, 1], 1))
def test_targets_of_a_task_are_compared_with_its_classes(by: int):
    def data(key: jax.Array, step: Any) -> Any:
        x = jax.random.normal(key, (32, 4))
        return {"x": x, "y": jnp.argmax(x[:, :3], -1) + by}

    task = Task(
        init=lambda key: np.ones((4, 3), np.float32),
        data=data,
        loss=lambda w, b: (jnp.mean(jax.nn.relu(1 + b["x"] @ w).sum(-1) - b["y"]) ** 2, {}),
        targets=lambda b: b["y"],
        classes=3,
    )
    (outcome,) = run_all(task, only=["labels"])
    assert (outcome.result == "failed") == (by == 1), outcome.detail
    assert by == 0 or "counted from one" in outcome.detail
