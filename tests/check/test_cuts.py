"""Gradients that a stop_gradient cuts or turns around, in several disguises each, and right uses of it."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from lapwing import check
from lapwing.check import CheckError

stop = jax.lax.stop_gradient
PARAMS = {"w": jnp.ones((3, 3)), "v": jnp.ones((3, 4)), "codes": jnp.ones((5, 4))}
BATCH = {"x": jnp.ones((8, 6, 3)), "y": jnp.zeros(8, int)}


def of(loss: Any, params: Any = PARAMS) -> check.Report:
    return check.cuts(loss, params, BATCH)


# Loops that detach their state.


def run(step: Any) -> Any:
    """The loss of a loop over the times of the batch, in which `step(params, h, x)` returns h and an output."""

    def loss(params: Any, batch: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            h, total = carry
            h, y = step(params, h, x)
            return (h, total + jnp.sum(h)), y

        start = (jnp.zeros((8, 3)), 0.0)
        (h, total), ys = jax.lax.scan(body, start, jnp.swapaxes(batch["x"], 0, 1))
        return jnp.mean(h**2) + total + jnp.mean(ys)

    return loss


def tanh(params: Any, h: Any, x: Any) -> Any:
    return jnp.tanh(h @ params["w"] + x)


def detached_at_the_end(params: Any, h: Any, x: Any) -> Any:
    h = tanh(params, h, x)
    return stop(h), h


@pytest.mark.parametrize(
    "wrong",
    [
        lambda params, h, x: (tanh(params, stop(h), x), 0.0),
        detached_at_the_end,
        lambda params, h, x: (jax.jit(lambda h: 0.9 * stop(h) + tanh(params, stop(h), x))(h), 0.0),
    ],
    ids=["at the beginning", "at the end", "in a call"],
)
def test_a_loop_that_detaches_its_state_in_every_step_is_found(wrong: Any):
    with pytest.raises(CheckError, match=r"detaches the state in every step of the loop at test_cuts.py"):
        of(run(wrong))


def window(params: Any, h: Any, x: Any) -> Any:
    """Two steps, before which the state is detached: truncated backpropagation."""
    h = tanh(params, stop(h), x)
    return tanh(params, h, x), h


def windows(params: Any, h: Any, x: Any) -> Any:
    return jax.lax.scan(lambda h, _: (tanh(params, h, x), None), stop(h), length=3)[0], h


@pytest.mark.parametrize(
    "right",
    [
        lambda params, h, x: (tanh(params, h, x), 0.0),
        lambda params, h, x: (0.9 * h + tanh(params, stop(h), x), 0.0),  # a part of the state is live
        lambda params, h, x: (tanh(params, h, x), stop(h)),  # an output is detached
        lambda params, h, x: (
            0.9 * h + 0.1 * stop(x @ params["w"]),
            jnp.sum(x @ params["w"] * h),
        ),  # an average
        window,
        windows,
    ],
    ids=["plain", "in part", "output", "average", "window of two", "window that is a loop"],
)
def test_a_loop_whose_state_is_live_is_not(right: Any):
    of(run(right))


def refined(params: Any, batch: Any) -> Any:
    """Steps that read no data, with a loss in each: the state is detached on purpose."""

    def step(h: Any, _: Any) -> Any:
        h = tanh(params, stop(h), batch["x"][:, 0])
        return h, jnp.mean(h**2)

    return jnp.mean(jax.lax.scan(step, jnp.zeros((8, 3)), length=4)[1])


def test_refinement_with_a_loss_in_each_step_is_not():
    of(refined)


# Straight-through estimators.


def quantized(through: Any) -> Any:
    def loss(params: Any, batch: Any) -> Any:
        z = jnp.tanh(batch["x"][:, 0] @ params["v"])
        q = params["codes"][jnp.argmin(jnp.sum((z[:, None] - params["codes"]) ** 2, -1), -1)]
        return jnp.mean((through(z, q) - 1.0) ** 2) + jnp.mean((z - stop(q)) ** 2)

    return loss


def binary(through: Any) -> Any:
    def loss(params: Any, batch: Any) -> Any:
        soft = jax.nn.softmax(batch["x"] @ params["v"])
        return jnp.mean((through(soft, jax.nn.one_hot(jnp.argmax(soft, -1), 4)) - 1.0) ** 2)

    return loss


def in_a_loop(through: Any) -> Any:
    def step(params: Any, h: Any, x: Any) -> Any:
        h = tanh(params, h, x)
        return through(h, jnp.sign(h)), 0.0

    return run(step)


KINDS = pytest.mark.parametrize("kind", [quantized, binary, in_a_loop])


@KINDS
@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, q: q + stop(x) - x,
        lambda x, q: stop(q + x) - x,
        lambda x, q: q - (x - stop(x)),
        lambda x, q: -x + (stop(x) + q),
    ],
)
def test_the_wrong_sign_of_a_straight_through_estimator_is_found(kind: Any, wrong: Any):
    with pytest.raises(
        CheckError, match=r"the straight-through estimator at test_cuts.py:.* has the wrong sign"
    ):
        of(kind(wrong))


@KINDS
@pytest.mark.parametrize(
    "wrong",
    [lambda x, q: stop(x + (q - x)), lambda x, q: x + (q - x), lambda x, q: x - (x - stop(q))],
    ids=["stopped", "not stopped", "only the code stopped"],
)
def test_a_straight_through_estimator_that_is_cut_whole_is_found(kind: Any, wrong: Any):
    with pytest.raises(CheckError, match=r"the straight-through estimator at .* cuts the gradient whole"):
        of(kind(wrong))


@KINDS
@pytest.mark.parametrize(
    "right",
    [
        lambda x, q: x + stop(q - x),
        lambda x, q: q + x - stop(x),
        lambda x, q: stop(q) + (x - stop(x)),
        lambda x, q: q,
    ],
)
def test_a_right_straight_through_estimator_is_not(kind: Any, right: Any):
    of(kind(right))


@pytest.mark.parametrize(
    "right",
    [
        lambda p, b: jnp.mean(stop(2 * (b["x"] @ p["w"])) - b["x"] @ p["w"]),  # a reversed gradient
        lambda p, b: jnp.mean(
            (b["x"] @ p["w"]) ** 2 - ((z := jnp.tanh(b["x"] @ p["w"])) - stop(z))
        ),  # a hidden bonus
        lambda p, b: jnp.mean(jnp.exp((z := b["x"] @ p["w"]) - stop(z))),
        lambda p, b: jnp.mean((h := b["x"] @ p["w"]) + (jnp.tanh(h) - h)),
    ],
    ids=["reversed", "bonus", "ratio", "residual"],
)
def test_sums_that_are_no_estimators_are_not(right: Any):
    of(right)


def test_what_is_computed_twice_is_one_value():
    def loss(params: Any, batch: Any) -> Any:
        soft = lambda: jax.nn.softmax(batch["x"] @ params["v"])  # noqa: E731
        hard = jax.nn.one_hot(jnp.argmax(soft(), -1), 4)
        return jnp.mean((hard + stop(soft()) - soft() - 1.0) ** 2)

    with pytest.raises(CheckError, match="has the wrong sign"):
        of(loss)


# Terms without a gradient.


def distilled(term: Any) -> Any:
    def loss(params: Any, batch: Any) -> Any:
        student = batch["x"][:, 0] @ params["v"]
        hard = -jnp.mean(jax.nn.log_softmax(student)[jnp.arange(8), batch["y"]])
        return hard + 0.5 * term(student, batch["x"][:, 1] @ jnp.ones((3, 4)), params)

    return loss


def reversed_kl(student: Any, teacher: Any, params: Any) -> Any:
    student = stop(jax.nn.softmax(student))
    return jnp.mean(jnp.sum(student * (jnp.log(student) - jax.nn.log_softmax(teacher)), -1))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda s, t, p: -jnp.mean(jnp.sum(jax.nn.softmax(t) * stop(jax.nn.log_softmax(s)), -1)),
        lambda s, t, p: jnp.mean((stop(s) - t) ** 2),
        reversed_kl,
        lambda s, t, p: stop(jnp.sum(p["w"] ** 2)),
    ],
    ids=["student", "squares", "divergence", "penalty"],
)
def test_a_term_that_is_detached_is_found(wrong: Any):
    with pytest.raises(
        CheckError, match="a term of the loss depends on the parameters and has no gradient: stop_gr"
    ):
        of(distilled(wrong))


def shifted(s: Any, t: Any, p: Any) -> Any:
    """A logsumexp of one's own: the maximum is stopped, and is a term."""
    most = stop(s.max(-1, keepdims=True))
    return jnp.mean(most + jnp.log(jnp.sum(jnp.exp(s - most), -1, keepdims=True)))


@pytest.mark.parametrize(
    "right",
    [
        lambda s, t, p: -jnp.mean(jnp.sum(stop(jax.nn.softmax(t)) * jax.nn.log_softmax(s), -1)),
        shifted,
        lambda s, t, p: jnp.mean(s * stop(t - s.mean())),
        lambda s, t, p: (
            jnp.mean(s**2) + stop(jnp.mean(jnp.abs(s)) - jnp.mean(s**2))
        ),  # another value is shown
        lambda s, t, p: jnp.mean(s**2 - 2 * s * (goal := stop(t @ p["v"].T @ p["v"])) + goal**2),
    ],
    ids=["teacher", "logsumexp", "advantage", "value", "squares by hand"],
)
def test_a_term_with_a_gradient_is_not(right: Any):
    of(distilled(right))
