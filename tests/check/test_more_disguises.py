"""Mistakes that are found by what a program computes and not by what it is called: each with a twin that is right."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing import check
from lapwing.check import CheckError
from lapwing.check._attention_axis import check_axis
from lapwing.check._averages import check_averages
from lapwing.check._bootstrap import check_bootstrap
from lapwing.check._constant_draws import check_constant_draws
from lapwing.check._drawn import check_drawn_pairs, check_rows
from lapwing.check._forgets import check_lasts
from lapwing.check._integers import check_integers
from lapwing.check._metrics import check_metrics
from lapwing.check._moments import check_moments
from lapwing.check._noise import check_noise
from lapwing.check._padded import check_padded
from lapwing.check._program import read, softmaxes
from lapwing.check._seen import check_seen
from lapwing.check._signs import check_signs
from lapwing.check._thrown import check_thrown
from lapwing.check._units import check_units

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(12, 4)).astype(np.float32)
W = RANDOM.normal(size=(4, 4)).astype(np.float32)
LABELS = RANDOM.integers(0, 4, 12).astype(np.int32)
KEY = jax.random.key(0)


def fails(match: str, wrong: Any, right: Any) -> None:
    with pytest.raises(CheckError, match=match):
        wrong()
    right()


def test_what_is_computed_and_thrown_away():
    def loss(w: Any, x: Any, wrong: bool) -> Any:
        scaled = x - x.mean(0)
        out = jnp.tanh((x if wrong else scaled) @ w)
        return jnp.mean(out**2)

    def helper(w: Any, x: Any) -> Any:
        out = x @ w
        odds = jax.nn.softmax(out)
        return out, odds

    def closed(function: Any) -> None:
        check_thrown(read(function, opens=lambda eqn: False, params=W, batch=X), "the loss")

    fails(
        r"what the loss computes at test_more_disguises.py:\d+ is thrown away",
        lambda: closed(lambda w, x: loss(w, x, True)),
        lambda: closed(lambda w, x: loss(w, x, False)),
    )
    closed(lambda w, x: jnp.mean(helper(w, x)[0]))  # What a function returns beside another may stay unread.
    closed(lambda w, x: jnp.mean(jax.grad(lambda v: jnp.sum(jnp.sin(x @ v)))(w)))


def test_inputs_that_are_scaled_in_training_only():
    training = read(lambda w, x: jnp.mean((x / 255) @ w), params=W, batch=200 + X)

    def seen(evaluate: Any) -> None:
        check_seen(
            training, (W, 200 + X), read(evaluate, params=W, batch=200 + X), (W, 200 + X), "the evaluation"
        )

    fails(
        "is given numbers of size 0.78",
        lambda: seen(lambda w, x: x @ w),
        lambda: seen(lambda w, x: x / 255 @ w),
    )


def test_metrics_of_pairs_and_of_other_parameters():
    def metrics(function: Any) -> None:
        check_metrics(read(function, params=W, batch={"x": X, "y": LABELS}), "the evaluation")

    right = lambda w, b: jnp.mean((b["x"] @ w).argmax(-1) == b["y"])  # noqa: E731
    fails(
        "compares every prediction with every target",
        lambda: metrics(lambda w, b: jnp.mean((b["x"] @ w).argmax(-1)[:, None] == b["y"])),
        lambda: metrics(right),
    )
    fails(
        "does not depend on the parameters", lambda: metrics(lambda w, b: right(W, b)), lambda: metrics(right)
    )


@pytest.mark.parametrize("loss", [optax.huber_loss, lambda a, b: (a - b) ** 2])
def test_a_temporal_difference_with_a_gradient_through_its_target(loss: Any):
    batch = {"o": X, "next": X[::-1].copy(), "r": X[:, 0]}

    def of(stop: Any) -> Any:
        return lambda w, b: jnp.mean(loss((b["o"] @ w).max(-1), stop(b["r"] + 0.9 * (b["next"] @ w).max(-1))))

    def bootstrap(function: Any) -> None:
        check_bootstrap(read(function, params=W, batch=batch))

    fails(
        "the target of a temporal difference has a gradient",
        lambda: bootstrap(of(lambda goal: goal)),
        lambda: bootstrap(of(jax.lax.stop_gradient)),
    )


def test_a_differential_equation_is_no_temporal_difference():
    def residual(w: Any, x: Any) -> Any:
        u = lambda t: jnp.tanh(t * w).sum()  # noqa: E731
        return jnp.mean(jax.vmap(lambda t: (jax.grad(u)(t) - (t + 0.5 * u(t))) ** 2)(x))

    check_bootstrap(read(residual, params=W[0], batch=X[:, 0]))


def test_a_softmax_along_the_queries():
    def attend(axis: int, again: bool = False) -> Any:
        def model(w: Any, x: Any) -> Any:
            weights = jax.nn.softmax((x @ w) @ (x @ w).T, axis)
            return (weights / weights.sum(-1, keepdims=True) if again else weights) @ x

        return model

    def axis(function: Any) -> None:
        program = read(function, params=W, batch=X)
        for each in softmaxes(program):
            check_axis(program, each)

    fails("along the queries", lambda: axis(attend(0)), lambda: axis(attend(1)))
    axis(attend(0, again=True))  # Slot attention.


@pytest.mark.parametrize(
    ("match", "wrong", "right"),
    [
        (
            "minus the square of params",
            lambda w, b: jnp.mean(b["x"] @ w) - 0.1 * jnp.sum(w**2),
            lambda w, b: jnp.mean(b["x"] @ w) + 0.1 * jnp.sum(w**2),
        ),
        (
            "log-likelihood has the wrong sign",
            lambda w, b: jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(b["x"] @ w), b["y"][:, None], 1)),
            lambda w, b: -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(b["x"] @ w), b["y"][:, None], 1)),
        ),
        (
            "log-likelihood has the wrong sign",
            lambda w, b: -optax.softmax_cross_entropy_with_integer_labels(b["x"] @ w, b["y"]).mean(),
            lambda w, b: optax.softmax_cross_entropy_with_integer_labels(b["x"] @ w, b["y"]).mean(),
        ),
        (
            "the loss of a policy has the wrong sign",
            lambda w, b: jnp.mean(jax.nn.log_softmax(b["x"] @ w)[:, 0] * b["advantage"]),
            lambda w, b: -jnp.mean(jax.nn.log_softmax(b["x"] @ w)[:, 0] * b["advantage"]),
        ),
    ],
)
def test_signs(match: str, wrong: Any, right: Any):
    batch = {"x": X, "y": LABELS, "advantage": X[:, 1]}

    def signs(function: Any) -> None:
        check_signs(read(function, params=W, batch=batch), W, batch)

    fails(match, lambda: signs(wrong), lambda: signs(right))


def test_the_entropy_of_a_policy_is_not_minimized():
    batch = {"x": X, "advantage": X[:, 1]}

    def of(weight: float) -> Any:
        def loss(w: Any, b: Any) -> Any:
            log_p = jax.nn.log_softmax(b["x"] @ w)
            entropy = -jnp.sum(jnp.exp(log_p) * log_p, -1).mean()
            return -jnp.mean(log_p[:, 0] * b["advantage"]) + weight * entropy

        return lambda: check_signs(read(loss, params=W, batch=batch), W, batch)

    fails("the entropy of a policy is minimized", of(0.1), of(-0.1))


def test_decays_of_adam_that_are_swapped():
    fails(
        "the two decays are swapped",
        lambda: check_moments(optax.adam(1e-3, b1=0.999, b2=0.9), {"w": W}),
        lambda: check_moments(optax.adamw(1e-3), {"w": W}),
    )


def test_a_warm_up_that_is_longer_than_the_training():
    fails(
        "the training ends while its warm-up",
        lambda: check_lasts(optax.linear_schedule(0.0, 1e-3, 100_000), 300),
        lambda: check_lasts(optax.warmup_cosine_decay_schedule(0.0, 1e-3, 100, 300), 300),
    )


def test_bytes_that_wrap_around_and_numbers_that_are_cut_off():
    image = (40 * X + 128).clip(0, 255).astype(np.uint8)

    def integers(function: Any, batch: Any) -> None:
        check_integers(read(function, params=W, batch=batch), (W, batch))

    fails(
        "integers of type uint8 wrap around",
        lambda: integers(lambda w, x: jnp.mean((x - jnp.uint8(128)).astype(jnp.float32) @ w), image),
        lambda: integers(lambda w, x: jnp.mean((x.astype(jnp.float32) - 128) @ w), image),
    )
    small = RANDOM.random((12, 4)).astype(np.float32)
    fails(
        "numbers are made integers",
        lambda: integers(lambda w, x: jnp.mean(x.astype(jnp.int32) @ w), small),
        lambda: integers(lambda w, x: jnp.mean(jnp.floor(x).astype(jnp.int32) @ w), small),
    )


def test_noise_that_is_not_the_noise_of_the_inputs():
    def loss(w: Any, x: Any, key: Any, same: bool) -> Any:
        here, there = jax.random.split(key)
        noise = jax.random.normal(here, x.shape)
        goal = noise if same else jax.random.normal(there, x.shape)
        return jnp.mean(((x + noise) @ w - goal) ** 2)

    def noise(same: bool) -> None:
        check_noise(read(lambda w, x, k: loss(w, x, k, same), params=W, batch=X, key=KEY))

    fails("random numbers .* that they do not depend on", lambda: noise(False), lambda: noise(True))


def test_random_numbers_of_a_constant_key():
    def draws(constant: bool) -> None:
        def loss(w: Any, x: Any, key: Any) -> Any:
            used = jax.random.key(3) if constant else key
            return jnp.mean((x + jax.random.normal(used, x.shape)) @ w)

        check_constant_draws(read(loss, params=W, batch=X, key=KEY), "the loss")

    fails("draws with a constant key", lambda: draws(True), lambda: draws(False))
    projected = lambda w, x: jnp.mean((x @ jax.random.normal(jax.random.key(1), (4, 4))) @ w)  # noqa: E731
    check_constant_draws(read(projected, params=W, batch=X), "the loss")


def test_averages_of_parameters():
    state = {"ema": {"w": W}}

    def averages(step: Any) -> None:
        check_averages(step, {"w": W}, state)

    def moved(kept: float) -> Any:
        return lambda p, s: {"ema": jax.tree.map(lambda a, b: kept * a + (1 - kept) * b, s["ema"], p)}

    fails("it is the parameters themselves", lambda: averages(moved(0.01)), lambda: averages(moved(0.99)))
    fails("never moves", lambda: averages(lambda p, s: s), lambda: averages(moved(0.9)))
    check_averages(lambda p, s: s, {"w": W}, {"anchor": {"w": W}})


def test_units_that_stay_equal():
    loss = lambda p, x: jnp.mean((jnp.tanh(x @ p["a"]) @ p["b"] - 1) ** 2)  # noqa: E731
    second = RANDOM.normal(size=(4, 2)).astype(np.float32)
    params = {"a": jnp.full((4, 4), 0.1), "b": jnp.full((4, 2), 0.3)}
    fails(
        "begin with equal weights",
        lambda: check_units(jax.grad(loss), params, X),
        lambda: check_units(jax.grad(loss), {"a": params["a"], "b": second}, X),
    )


def test_padding_that_counts():
    lengths = RANDOM.integers(2, 8, 12)
    mask = (np.arange(8) < lengths[:, None]).astype(np.float32)
    batch = {"x": RANDOM.normal(size=(12, 8, 3)).astype(np.float32) * mask[..., None], "mask": mask}
    mean = lambda b: b["x"].mean(1)  # noqa: E731
    masked = lambda b: jnp.sum(b["x"] * b["mask"][..., None], 1) / jnp.sum(b["mask"], 1)[:, None]  # noqa: E731
    fails(
        "depend on how much padding", lambda: check_padded(mean, batch), lambda: check_padded(masked, batch)
    )
    check_padded(lambda b: jnp.cumsum(b["x"], 1), batch)


@pytest.mark.slow
def test_pairs_that_are_drawn_apart_and_rows_that_never_come():
    x = [RANDOM.normal(size=(32, 3)) for _ in range(16)]
    fixed = RANDOM.integers(0, 3, 32)
    right = [{"x": each, "y": (each[:, 0] > 0).astype(np.int32)} for each in x]
    fails(
        "the targets are the same in all batches",
        lambda: check_drawn_pairs([{"x": each, "y": fixed} for each in x], lambda b: b["y"]),
        lambda: check_drawn_pairs(right, lambda b: b["y"]),
    )
    table, keys = jnp.asarray(RANDOM.normal(size=(500, 3))), list(jax.random.split(KEY, 32))

    def rows(bound: int) -> None:
        check_rows(lambda key, step: table[jax.random.randint(key, (16,), 0, bound)], keys, list(range(32)))

    fails("of the data never come", lambda: rows(16), lambda: rows(500))


def test_a_last_bias_of_which_a_loss_has_differences_only():
    def loss(p: Any, b: Any) -> Any:
        score = lambda x: jnp.tanh(x @ p["w"]) @ p["v"] + p["b"]  # noqa: E731
        return -jnp.mean(jax.nn.log_sigmoid(score(b["win"]) - score(b["lose"])))

    params = {"w": W, "v": W[:, :1], "b": np.zeros(1, np.float32)}
    report = check.dead_parameters(loss, params, [{"win": X, "lose": X[::-1].copy()}])
    assert "a shift by params['b']" in report.message
