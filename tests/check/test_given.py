"""Targets that the model is given, and an augmentation that changes what is asked: each with a twin that is right."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing.check import run_all
from lapwing.task import Task

KEY = jax.random.key(0)


def labels_of(task: Task) -> tuple[str, str]:
    (outcome,) = run_all(task, only=["labels"])
    return outcome.result, outcome.detail


def running_mean(x: jax.Array) -> jax.Array:
    return jnp.cumsum(x, 1) / jnp.arange(1, x.shape[1] + 1)[:, None]


def series(shift: bool, model: Any = running_mean, loss_shifts: bool = False) -> Task:
    def data(key: jax.Array, step: Any) -> Any:
        x = jnp.cumsum(jax.random.normal(key, (8, 11, 2)), 1)
        return {"now": x[:, :-1], "next": x[:, 1:] if shift else x[:, :-1]}

    def predict(w: Any, batch: Any) -> jax.Array:
        return batch["now"] @ w + model(batch["now"])

    def loss(w: Any, batch: Any) -> Any:
        made, goal = predict(w, batch), batch["next"]
        made, goal = (made[:, :-1], goal[:, 1:]) if loss_shifts else (made, goal)
        return jnp.mean((made - goal) ** 2), {}

    return Task(
        init=lambda key: jnp.zeros((2, 2)),
        data=data,
        loss=loss,
        predict=predict,
        targets=lambda batch: batch["next"],
        time_axis=1,
        output_time_axis=1,
    )


def test_a_series_that_is_its_own_target_is_found():
    result, detail = labels_of(series(shift=False))
    assert result == "failed"
    assert detail.startswith(
        "the target at time t (batch['next']) is batch['now'] at time t, which the model is given"
    )
    assert labels_of(series(shift=True))[0] != "failed"


def test_an_autoencoder_and_a_loss_that_shifts_have_equal_arrays_on_purpose():
    assert labels_of(series(shift=False, model=lambda x: x[:, ::-1]))[0] != "failed"
    assert labels_of(series(shift=False, loss_shifts=True))[0] != "failed"


def words(counted: Any, share: float = 0.2) -> Task:
    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        text = (jax.random.randint(k1, (16, 1), 0, 7) + 2 * jnp.arange(12)) % 7
        hidden = jax.random.bernoulli(k2, share, text.shape).at[:, 3].set(True)
        return {"seen": jnp.where(hidden, 7, text), "words": text, "hidden": hidden}

    def predict(params: Any, batch: Any) -> jax.Array:
        h = params["embed"][batch["seen"]]
        return (h + h.mean(1, keepdims=True)) @ params["out"]

    def loss(params: Any, batch: Any) -> Any:
        each = optax.softmax_cross_entropy_with_integer_labels(predict(params, batch), batch["words"])
        return jnp.mean(each, where=counted(batch["hidden"])), {}

    return Task(
        init=lambda key: {"embed": jax.random.normal(key, (8, 6)), "out": jax.random.normal(key, (6, 7)) / 3},
        data=data,
        loss=loss,
        predict=predict,
        targets=lambda batch: batch["words"],
        classes=7,
    )


def test_a_loss_of_the_words_that_are_shown_is_found():
    result, detail = labels_of(words(lambda hidden: ~hidden))
    assert result == "failed"
    assert detail.startswith("the loss counts the tokens that the model is shown, and none of the ")
    assert labels_of(words(lambda hidden: hidden))[0] != "failed"
    assert (
        labels_of(words(lambda hidden: hidden | True))[0] != "failed"
    )  # All words count, as in some models.


def tones(follows: bool) -> Task:
    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        rises = jax.random.bernoulli(k1, 0.5, (32,))
        slope = jnp.where(rises, 0.2, -0.2)
        return {
            "x": slope[:, None] * (jnp.arange(6) - 2.5) + 0.3 * jax.random.normal(k2, (32, 6)),
            "y": rises * 1,
        }

    def prepare(w: Any, batch: Any, key: jax.Array) -> Any:
        back = jax.random.bernoulli(key, 0.5, (32,))
        x = jnp.where(back[:, None], batch["x"][:, ::-1], batch["x"])
        return {"x": x, "y": jnp.where(back & follows, 1 - batch["y"], batch["y"])}

    return Task(
        init=lambda key: jnp.zeros((6, 2)),
        data=data,
        prepare=prepare,
        loss=lambda w, b: (optax.softmax_cross_entropy_with_integer_labels(b["x"] @ w, b["y"]).mean(), {}),
        predict=lambda w, b: b["x"] @ w,
        targets=lambda b: b["y"],
        classes=2,
    )


def test_an_augmentation_whose_labels_do_not_follow_is_found():
    result, detail = labels_of(tones(follows=False))
    assert (result, detail.partition(":")[0]) == (
        "failed",
        "Task.prepare takes away what the inputs say about their targets",
    )
    assert labels_of(tones(follows=True))[0] == "passed"


@pytest.mark.parametrize("rows", [60, 600])
def test_numbers_of_rows_are_not_compared_with_their_neighbours(rows: int):
    """A recommender's pairs say nothing to kernels: what user 17 likes says nothing about user 18."""
    likes = np.random.default_rng(0).normal(size=rows)

    def data(key: jax.Array, step: Any) -> Any:
        user = jax.random.randint(key, (64,), 0, rows)
        return {"user": user, "y": jnp.asarray(likes)[user]}

    task = Task(
        init=lambda key: jnp.zeros(rows),
        data=data,
        loss=lambda w, b: (jnp.mean((w[b["user"]] - b["y"]) ** 2), {}),
        predict=lambda w, b: w[b["user"]],
        targets=lambda b: b["y"],
    )
    assert labels_of(task)[0] != "failed"
