"""Mistakes that the doctor is asked about most, each in three disguises or more, with clean twins that differ in one
thing: pairs that are torn, a target among the inputs, a causal leak, decay, accumulation, devices."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing import check
from lapwing.check import CheckError
from lapwing.check._leakage import check_target_column
from lapwing.check._order import check_order
from lapwing.task import Task
from lapwing.train import FitConfig
from tests.slow import some

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(12, 3)).astype(np.float32)
BATCH = {"x": X, "y": (X.sum(1) > 0).astype(np.int32) + (X[:, 0] > 0)}
W = RANDOM.normal(size=(3, 3)).astype(np.float32)
BY_LABEL = optax.softmax_cross_entropy_with_integer_labels


def logits(b: Any) -> jax.Array:
    return jnp.asarray(b["x"]) @ W


# Torn pairs.


@pytest.mark.parametrize(
    "torn",
    some(
        [
            lambda b: BY_LABEL(logits(b), jnp.roll(b["y"], 1)).mean(),
            lambda b: BY_LABEL(logits(b)[:-1], b["y"][1:]).mean(),
            lambda b: BY_LABEL(logits(b).T.reshape(-1, 3), b["y"]).mean(),
            lambda b: jnp.mean((logits(b)[:, 0] - jnp.sort(b["y"])) ** 2),
        ],
        2,
        3,
    ),
    ids=["rolled", "shifted", "reshaped", "sorted"],
)
def test_predictions_that_are_compared_with_targets_of_others_are_found(torn: Any):
    with pytest.raises(CheckError, match="the loss depends on the order of the examples: it is"):
        check_order(torn, BATCH, 0)


@pytest.mark.parametrize(
    "part",
    [
        lambda each: each[-3:].mean(),
        lambda each: jax.lax.scan(lambda _, x: (x.mean(), 0), 0.0, each.reshape(4, 3))[0],
    ],
    ids=["an index", "a sum that is overwritten"],
)
def test_a_loss_of_a_part_of_the_examples_is_found(part: Any):
    with pytest.raises(
        CheckError,
        match=r"only 3 of the 12 examples that were tried \(numbers 9 to 11\) have an effect on the loss\. Look",
    ):
        check_order(lambda b: part(BY_LABEL(logits(b), b["y"])), BATCH, 0)


@pytest.mark.parametrize(
    "right",
    [
        lambda b: BY_LABEL(logits(b), b["y"]).mean(),
        lambda b: BY_LABEL(logits(b)[::-1], b["y"][::-1]).mean(),
        lambda b: jnp.mean(
            (jnp.sort(logits(b)[:, 0]) - jnp.sort(b["y"])) ** 2
        ),  # a distance of distributions
        lambda b: BY_LABEL(logits(b) @ logits(b).T, jnp.arange(12)).mean(),  # contrastive
        lambda b: jnp.mean((logits(b) - logits(b).mean(0)) ** 2),
    ],
)
def test_losses_of_examples_in_any_order_pass(right: Any):
    check_order(right, BATCH, 0)


def supervised(loss: Any) -> Task:
    return Task(
        init=lambda key: {"w": jnp.asarray(W)},
        data=lambda key, step: {
            "x": jax.random.normal(key, (12, 3)),
            "y": jax.random.randint(key, (12,), 0, 3),
        },
        loss=lambda p, b: (loss(b["x"] @ p["w"], b["y"]), {}),
        predict=lambda p, b: b["x"] @ p["w"],
        targets=lambda b: b["y"],
    )


@pytest.mark.slow
def test_torn_pairs_are_found_in_a_run():
    torn, right = (
        supervised(lambda z, y: BY_LABEL(z, y[::-1]).mean()),
        supervised(lambda z, y: BY_LABEL(z, y).mean()),
    )
    (found,) = check.run_all(torn, only=["labels"])
    assert found.result == "failed"
    assert found.detail.startswith("the loss depends on the order of the examples")
    (found,) = check.run_all(right, only=["labels"])
    assert found.result == "passed"


# A target among the inputs.

INPUTS = RANDOM.normal(size=(64, 6))
VALUES = INPUTS @ RANDOM.normal(size=6)
KINDS = np.digitize(VALUES, [-2, 0, 2])
LABELS = lambda batch: batch["y"]  # noqa: E731
DISGUISES = {
    "a copy": (VALUES, VALUES, "is the target, up to its scale"),
    "normalized": ((VALUES - VALUES.mean()) / VALUES.std(), VALUES, "is the target, up to its scale"),
    "on another scale": (np.exp(VALUES / 4), VALUES, "determines the target one by one"),
    "under other names": (np.array([5, 2, 9, 0])[KINDS], KINDS, "determines the target one by one"),
}


@pytest.mark.parametrize("name", DISGUISES)
def test_a_target_among_the_inputs_is_found(name: str):
    column, targets, message = DISGUISES[name]
    check_target_column({"x": INPUTS, "y": targets}, LABELS)
    with_it = np.insert(INPUTS, 4, column, axis=1)
    with pytest.raises(CheckError, match=f"column 4 of the inputs {message}"):
        check_target_column({"x": with_it, "y": targets}, LABELS)
    noisy = np.insert(INPUTS, 4, column + 0.3 * np.std(column) * RANDOM.normal(size=64), axis=1)
    check_target_column({"x": noisy, "y": targets}, LABELS)


# A causal leak.

SERIES = RANDOM.normal(size=(2, 8, 4)).astype(np.float32)
TAPS = RANDOM.normal(size=(3, 4, 4)).astype(np.float32)


def attend(x: jax.Array, mask: jax.Array) -> jax.Array:
    scores = jnp.where(mask, jnp.einsum("btd,bsd->bts", x, x), -jnp.inf)
    return jax.nn.softmax(scores) @ x


def convolve(x: jax.Array, before: int, after: int) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, TAPS, (1,), [(before, after)], dimension_numbers=("NWC", "WIO", "NWC")
    )


def recur(x: jax.Array, reverse: bool) -> jax.Array:
    step = lambda h, each: (jnp.tanh(h + each), h + each)  # noqa: E731
    return jax.lax.scan(step, jnp.zeros((2, 4)), x.swapaxes(0, 1), reverse=reverse)[1].swapaxes(0, 1)


def normed(x: jax.Array, axis: Any) -> jax.Array:
    return (x - x.mean(axis, keepdims=True)) / (x.std(axis, keepdims=True) + 1e-3)


LEAKS = {
    "mask": (lambda x: attend(x, jnp.tri(8).T > 0), lambda x: attend(x, jnp.tri(8) > 0)),
    "one too far": (lambda x: attend(x, jnp.tri(8, k=1) > 0), lambda x: attend(x, jnp.tri(8, k=-0) > 0)),
    "norm": (lambda x: normed(x, (1, 2)), lambda x: normed(x, 2)),
    "convolution": (lambda x: convolve(x, 1, 1), lambda x: convolve(x, 2, 0)),
    "recurrence": (lambda x: recur(x, True), lambda x: recur(x, False)),
}


@pytest.mark.parametrize("name", some(LEAKS, 0, 1, 3))
def test_a_causal_leak_is_found(name: str):
    wrong, right = LEAKS[name]
    check.causality(right, SERIES, time_axis=1)
    with pytest.raises(CheckError, match="changes with the inputs from time"):
        check.causality(wrong, SERIES, time_axis=1)


# The sign of decay.

PARAMS = {"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}


def by_hand(sign: float) -> optax.GradientTransformation:
    def update(gradient: Any, state: Any, params: Any = None) -> Any:
        return jax.tree.map(lambda g, p: -0.1 * g - sign * 0.01 * p, gradient, params), state

    return optax.GradientTransformation(lambda params: (), update)


DECAYS = {
    "after the learning rate": (
        optax.chain(optax.adam(1e-2), optax.add_decayed_weights(0.1)),
        optax.chain(
            optax.scale_by_adam(), optax.add_decayed_weights(0.1), optax.scale_by_learning_rate(1e-2)
        ),
    ),
    "a negative number": (optax.adamw(1e-2, weight_decay=-0.1), optax.adamw(1e-2, weight_decay=0.1)),
    "by hand": (by_hand(-1.0), by_hand(1.0)),
    "of one group": (
        optax.partition({"a": by_hand(-1.0), "b": optax.sgd(0.1)}, {"w": "a", "b": "b"}),
        optax.partition({"a": by_hand(1.0), "b": optax.sgd(0.1)}, {"w": "a", "b": "b"}),
    ),
}


@pytest.mark.parametrize("name", some(DECAYS, 0, 2))
def test_decay_with_the_wrong_sign_is_found(name: str):
    wrong, right = DECAYS[name]
    check.optimizer(right, PARAMS)
    with pytest.raises(CheckError, match="away from zero: its weight decay has the wrong sign"):
        check.optimizer(wrong, PARAMS)


# Accumulation over micro-batches.


def uneven(key: jax.Array, step: Any) -> dict[str, jax.Array]:
    x = jax.random.normal(key, (8, 3))
    count = jnp.where(step % 2 == 0, 2, 7)
    return {"x": x, "y": x.sum(1), "mask": (jnp.arange(8) < count).astype(jnp.float32)}


def squares(p: Any, b: Any) -> jax.Array:
    return jnp.sum((b["x"] @ p["w"] - b["y"]) ** 2 * b["mask"])


def accumulating() -> optax.GradientTransformation:
    """Two gradients for an update, written by hand."""

    def update(gradient: Any, state: Any, params: Any = None) -> Any:
        total, count = jax.tree.map(jnp.add, state[0], gradient), state[1] + 1
        is_due = count == 2
        made = jax.tree.map(lambda g: jnp.where(is_due, -0.05 * g, 0.0), total)
        return made, (jax.tree.map(lambda g: jnp.where(is_due, 0.0, g), total), jnp.where(is_due, 0, count))

    return optax.GradientTransformation(
        lambda params: (jax.tree.map(jnp.zeros_like, params), jnp.zeros((), jnp.int32)), update
    )


ACCUMULATES = {
    "MultiSteps": optax.MultiSteps(optax.sgd(1e-2), 2),
    "apply_every": optax.chain(optax.apply_every(2), optax.sgd(1e-2)),
    "by hand": accumulating(),
}


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("apply_every", "by hand")]


@pytest.mark.parametrize("name", ["MultiSteps", *SLOW])
def test_micro_batches_that_are_weighed_by_their_counts_are_found(name: str):
    task = Task(
        init=lambda key: {"w": jnp.zeros(3)},
        data=uneven,
        loss=lambda p, b: (squares(p, b) / b["mask"].sum(), {}),
        optimizer=ACCUMULATES[name],
    )
    (found,) = check.run_all(task, only=["optimizer"])
    assert found.result == "failed"
    assert "how much an example counts depends on the accumulation" in found.detail
    fixed = dataclasses.replace(task, loss=lambda p, b: (squares(p, b) / 4.5, {}))
    (found,) = check.run_all(fixed, only=["optimizer"])
    assert found.result == "passed", found.detail


def test_one_update_for_each_batch_may_divide_by_its_count():
    task = Task(
        init=lambda key: {"w": jnp.zeros(3)},
        data=uneven,
        loss=lambda p, b: (squares(p, b) / b["mask"].sum(), {}),
        optimizer=optax.chain(optax.trace(0.9), optax.sgd(1e-2)),
    )
    (found,) = check.run_all(task, only=["optimizer"])
    assert found.result == "passed", found.detail


# Copies on devices.


def on_devices(step: Any, start: Any) -> Any:
    xs = jax.random.normal(jax.random.key(0), (2, 4, 3))
    return jax.vmap(step, in_axes=(None, 0, 0), axis_name="d")(start, xs, jnp.arange(2))


def slope_of(w: jax.Array, x: jax.Array) -> jax.Array:
    return jax.grad(lambda w: jnp.mean((w * x - 1) ** 2))(w)


def gradients_apart(w: Any, x: Any, number: Any, mend: Any) -> Any:
    return w - 0.1 * mend(slope_of(w, x))


def statistics_apart(w: Any, x: Any, number: Any, mend: Any) -> Any:
    return {"w": w, "mean": mend(x.mean(0))}


def noise_apart(w: Any, x: Any, number: Any, mend: Any) -> Any:
    noise = jax.random.normal(jax.random.fold_in(jax.random.key(1), number), w.shape)
    return w - 0.1 * jax.lax.pmean(slope_of(w, x), "d") + 0.01 * mend(noise)


def clipped_apart(w: Any, x: Any, number: Any, mend: Any) -> Any:
    slope = jax.lax.pmean(slope_of(w, x), "d")
    return w - 0.1 * slope / jnp.maximum(1.0, mend(jnp.linalg.norm(slope_of(w, x))))


@pytest.mark.parametrize("step", some([gradients_apart, statistics_apart, noise_apart, clipped_apart], 1, 3))
def test_copies_that_drift_apart_are_found(step: Any):
    mended = on_devices(lambda *given: step(*given, lambda each: jax.lax.pmean(each, "d")), jnp.ones(3))
    check.devices(mended, axis=0)
    apart = on_devices(lambda *given: step(*given, lambda each: each), jnp.ones(3))
    with pytest.raises(CheckError, match="differs between devices 0 and 1"):
        check.devices(apart, axis=0)


def test_a_part_of_a_batch_in_which_nothing_counts_is_found():
    task = Task(
        init=lambda key: {"w": jnp.zeros(3)},
        data=lambda key, step: uneven(key, 0),
        loss=lambda p, b: (squares(p, b) / b["mask"].sum(), {}),
        optimizer=optax.sgd,
    )
    (found,) = check.run_all(task, FitConfig(accumulate=2), only=["optimizer"])
    assert found.result == "failed"
    assert "is finite for a batch, and not for one of its 2 parts" in found.detail
