"""Optimizers whose state stands still, whose clip comes too late, or whose updates are rounded away."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

from lapwing import check
from lapwing.check import CheckError
from lapwing.check._advances import check_advances, check_clip_acts_on_gradients
from lapwing.task import Task
from lapwing.train import FitConfig
from tests.slow import some

PARAMS = {"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}
CLIP = optax.clip_by_global_norm(1.0)


def wrapped(inner: Any, choose: Any) -> Any:
    """An optimizer that returns the state that `choose(before, after)` makes."""

    def update(gradient: Any, state: Any, params: Any = None) -> Any:
        updates, after = inner.update(gradient, state, params)
        return updates, choose(state, after)

    return optax.GradientTransformation(inner.init, update)  # pyright: ignore


def old_if_finite(before: Any, after: Any) -> Any:
    finite = jnp.isfinite(optax.tree.norm(after[0].mu))
    return jax.lax.cond(finite, lambda: before, lambda: after)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (wrapped(optax.adam(1e-2), lambda before, after: before), "the state of the optimizer never changes"),
        (wrapped(optax.adam(1e-2), old_if_finite), "the state of the optimizer never changes"),
        (
            wrapped(optax.adam(1e-2), lambda before, after: (after[0]._replace(nu=before[0].nu), *after[1:])),
            r"a part of the state .* never changes: .*nu\['b'\]",
        ),
        (
            optax.chain(CLIP, wrapped(optax.trace(0.9), lambda before, after: before), optax.scale(-0.1)),
            "never changes",
        ),
    ],
    ids=["returned", "cond", "second moment", "momentum"],
)
def test_a_state_that_never_changes_is_found(wrong: Any, what: str):
    with pytest.raises(CheckError, match=what):
        check_advances(wrong, PARAMS)


@pytest.mark.parametrize(
    ("right", "period"),
    some(
        [
            (optax.adam(1e-2), 1),
            (optax.sgd(1e-2), 1),
            (optax.adafactor(1e-2), 1),
            (optax.MultiSteps(optax.adam(1e-2), 8).gradient_transformation(), 8),
            (optax.apply_if_finite(optax.adamw(1e-2), 3), 1),
            (optax.inject_hyperparams(optax.adam)(learning_rate=1e-2), 1),
            (
                optax.multi_transform(
                    {"w": optax.adam(1e-2), "b": optax.set_to_zero()}, {"w": "w", "b": "b"}
                ),
                1,
            ),
        ],
        0,
        3,
        6,
    ),
    ids=["adam", "no state", "factored", "accumulates", "if finite", "hyperparams", "frozen"],
)
def test_a_state_that_advances_is_not(right: Any, period: int):
    check_advances(right, PARAMS, period)


def clipped(updates: Any, state: Any, params: Any = None) -> Any:
    return jax.tree.map(lambda u: u / jnp.maximum(1.0, optax.tree.norm(updates)), updates), state


@pytest.mark.parametrize(
    "wrong",
    [
        optax.chain(optax.sgd(1e-2), CLIP),
        optax.chain(optax.trace(0.9), optax.scale_by_learning_rate(lambda step: 1e-2 / (step + 1)), CLIP),
        optax.chain(optax.chain(optax.sgd(0.1, 0.9), optax.clip(0.5)), optax.add_decayed_weights(0.0)),
    ],
    ids=["sgd", "schedule", "nested"],
)
def test_a_clip_behind_the_learning_rate_is_found(wrong: Any):
    with pytest.raises(CheckError, match=r"clip\w* comes after the learning rate: it clips the updates"):
        check.optimizer(wrong, PARAMS)


def test_a_clip_of_ones_own_behind_the_momentum_is_found():
    own = optax.GradientTransformation(lambda params: optax.EmptyState(), clipped)  # pyright: ignore
    with pytest.raises(
        CheckError, match="the clip comes after the learning rate: it limits the norm of the upd"
    ):
        check_clip_acts_on_gradients(optax.chain(optax.sgd(1e-2, 0.9), own), PARAMS)
    check_clip_acts_on_gradients(optax.chain(own, optax.sgd(1e-2, 0.9)), PARAMS)


@pytest.mark.parametrize(
    "right",
    some(
        [
            optax.chain(CLIP, optax.sgd(1e-2, 0.9)),
            optax.chain(
                optax.scale(1 / 1024), CLIP, optax.adam(1e-3)
            ),  # the scale of the loss is undone first
            optax.adam(1e-2, eps=1e-1),
            pytest.param(optax.lars(1e-2), marks=pytest.mark.slow),
            optax.sgd(1e-2, 0.9, nesterov=True),
        ],
        0,
        2,
    ),
    ids=["first", "loss scale", "adam", "lars", "none"],
)
def test_a_clip_of_gradients_is_not(right: Any):
    check.optimizer(right, PARAMS)
    check_clip_acts_on_gradients(right, PARAMS)


def kept(dtype: Any, rate: float, optimizer: Any = optax.adam, scale: float = 1.0) -> check.Outcome:
    """What the check of the optimizer says about parameters of this dtype."""
    task = Task(
        init=lambda key: {"w": (scale * jax.random.normal(key, (8, 16))).astype(dtype)},
        data=lambda key, step: {"x": jax.random.normal(key, (8, 8))},
        loss=lambda p, b: (jnp.mean((b["x"] @ p["w"].astype(jnp.float32) - 1) ** 2), {}),
        optimizer=optimizer,
    )
    (outcome,) = check.run_all(task, FitConfig(learning_rate=rate), only=["optimizer"])
    return outcome


def at_random(learning_rate: Any) -> Any:
    """Adam that rounds its updates at random to numbers that bfloat16 parameters can take."""

    def update(gradient: Any, state: Any, params: Any) -> Any:
        key, inner = state
        key, used = jax.random.split(key)
        wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (gradient, params))
        updates, inner = optax.adam(learning_rate).update(wide[0], inner, wide[1])

        def rounded(p: Any, u: Any) -> Any:
            spacing = 2.0 ** (jnp.floor(jnp.log2(jnp.abs(p.astype(jnp.float32)) + 1e-30)) - 7)
            return (spacing * jnp.floor(u / spacing + jax.random.uniform(used, u.shape))).astype(p.dtype)

        return jax.tree.map(rounded, params, updates), (key, inner)

    def init(params: Any) -> Any:
        wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
        return jax.random.key(0), optax.adam(learning_rate).init(wide)

    return optax.GradientTransformation(init, update)  # pyright: ignore


@pytest.mark.parametrize(
    "wrong",
    some(
        [
            {},
            {"dtype": jnp.float16, "rate": 1e-5},
            {"optimizer": lambda rate: optax.sgd(rate, 0.9), "scale": 4.0},
        ],
        0,
    ),
    ids=["bfloat16", "float16", "momentum"],
)
def test_updates_that_are_rounded_away_are_found(wrong: Any):
    outcome = kept(**({"dtype": jnp.bfloat16, "rate": 1e-4} | wrong))
    assert outcome.result == "failed", outcome.detail
    assert "never change in" in outcome.detail


@pytest.mark.parametrize(
    "right",
    [
        pytest.param({"dtype": jnp.float32}, marks=pytest.mark.slow),
        {"rate": 5e-2},
        pytest.param({"optimizer": at_random}, marks=pytest.mark.slow),
    ],
    ids=["float32", "large updates", "rounded at random"],
)
def test_updates_that_arrive_are_not(right: Any):
    outcome = kept(**({"dtype": jnp.bfloat16, "rate": 3e-4} | right))
    assert outcome.result == "passed", outcome.detail
