"""Loops whose values or gradients explode or vanish, and loops that keep them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.check import CheckError, CheckInputError, scale
from lapwing.loops import scan


def recurrent(w: jax.Array, xs: jax.Array, *, squash=jnp.tanh, loop=jax.lax.scan) -> jax.Array:
    def step(h, x):
        return squash(h @ w + x), None

    return jnp.sum(loop(step, jnp.zeros(w.shape[0]), xs)[0])


XS = 0.1 * jax.random.normal(jax.random.key(0), (60, 6))
ORTHOGONAL = jnp.asarray(np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0], jnp.float32)


def linear(x):
    return x


@pytest.mark.parametrize("loop", [jax.lax.scan, scan])
def test_a_loop_that_keeps_its_size_passes(loop):
    report = scale(lambda w, xs: recurrent(w, xs, loop=loop), ORTHOGONAL, XS)
    (loop_facts,) = report.facts["loops"]
    assert len(loop_facts["values"]) == len(loop_facts["gradients"]) == 60
    assert loop_facts["place"].startswith("test_scale.py:")


def test_values_that_explode_are_found_with_the_step_where_it_starts():
    with pytest.raises(CheckError) as caught:
        scale(lambda w, xs: recurrent(2 * w, xs, squash=linear), ORTHOGONAL, XS)
    message = str(caught.value)
    assert message.startswith("values explode in the loop at test_scale.py:")
    assert "a factor of 2 per step, and exceeds 10 times the first from step" in message


def test_steady_growth_is_found_before_it_loses_all_digits_and_a_sum_is_no_growth():
    def loop(rate, exponent):
        counts = jnp.arange(1, 61, dtype=jnp.float32)
        return jax.lax.scan(lambda h, n: (rate * h + n**exponent, None), jnp.float32(1.0), counts)[0]

    with pytest.raises(
        CheckError, match=r"values explode in the loop at test_scale.py:\d+: .* a factor of 1.2"
    ):
        scale(lambda rate: loop(rate, -9), jnp.float32(1.25))
    for exponent in (0, 3):  # Grows by 60, and by 3 million.
        scale(lambda rate: loop(rate, exponent), jnp.float32(1.0))  # noqa: B023


def test_gradients_that_explode_behind_a_bounded_value_are_found():
    with pytest.raises(
        CheckError, match=r"gradients explode in the loop at .* at step 0, a factor of 2 per step"
    ):
        scale(lambda w, xs: recurrent(2 * w, 0 * xs, squash=jnp.tanh), ORTHOGONAL, XS)


def test_gradients_that_vanish_are_found_with_the_step_before_which_nothing_is_learned():
    with pytest.raises(
        CheckError, match=r"gradients vanish .*; nothing is learned from the steps before \d+"
    ):
        scale(lambda w, xs: recurrent(0.5 * w, xs), ORTHOGONAL, XS)


def test_the_first_step_with_a_nan_is_named():
    def loss(w, xs):
        return recurrent(w, xs.at[17].set(-10.0), squash=lambda h: jnp.log(1.5 + h))

    with pytest.raises(CheckError, match=r"the carry of the loop at .* is nan from step 17 of 60 on"):
        scale(loss, 0.1 * ORTHOGONAL, XS)


def test_gradients_at_each_step_are_those_of_the_carry():
    def loss(w):
        return jax.lax.scan(lambda h, _: (w * h, None), jnp.float32(1.0), length=5)[0]

    (loop,) = scale(loss, jnp.float32(0.5)).facts["loops"]
    np.testing.assert_allclose(loop["values"], [0.5, 0.25, 0.125, 0.0625, 0.03125])
    np.testing.assert_allclose(loop["gradients"], [0.0625, 0.125, 0.25, 0.5, 1.0])


def test_loops_inside_jit_remat_and_custom_derivatives_and_backwards_are_seen():
    @jax.jit
    def inner(w, xs):
        return recurrent(w, xs)

    def loss(w, xs):
        backwards = jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h), jnp.zeros(6), xs, reverse=True)[1]
        return inner(w, xs) + jax.checkpoint(inner)(w, xs) + jnp.sum(backwards)

    assert len(scale(loss, ORTHOGONAL, XS).facts["loops"]) == 3


def test_a_function_without_a_loop_is_refused():
    with pytest.raises(CheckInputError, match=r"there is no jax\.lax\.scan in this function"):
        scale(lambda x: x**2, jnp.ones(()))
