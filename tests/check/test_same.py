"""Three implementations of a gradient, compared by speed alone (docs/story.md)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.check import CheckError, same_numbers
from lapwing.loops import scan

W = jax.random.normal(jax.random.key(0), (8, 8)) / 3
XS = jax.random.normal(jax.random.key(1), (20, 8))


def states(loop, w, xs):
    def step(h, x):
        h = jnp.tanh(h @ w + x)
        return h, h

    return loop(step, jnp.zeros(8), xs)[1]


def test_two_engines_of_the_same_loop_agree_in_values_and_gradients():
    same_numbers(lambda w, xs: states(jax.lax.scan, w, xs), lambda w, xs: states(scan, w, xs), W, XS)
    ours, theirs = (
        jax.grad(lambda w, xs, loop=loop: jnp.sum(states(loop, w, xs) ** 2)) for loop in (jax.lax.scan, scan)
    )
    assert same_numbers(ours, theirs, W, XS).facts["float64"]


def test_the_step_at_which_two_loops_differ_is_named():
    def forgetful(w, xs):
        return states(jax.lax.scan, w, xs.at[13].multiply(1.001))

    with pytest.raises(
        CheckError, match=r"the scan and my loop differ first at \[13, 0\]: .*float32; measured against"
    ):
        same_numbers(
            lambda w, xs: states(jax.lax.scan, w, xs), forgetful, W, XS, names=("the scan", "my loop")
        )


def test_compiled_or_not():
    same_numbers(lambda x: jnp.tanh(x) @ W, jax.jit(lambda x: jnp.tanh(x) @ W), XS)


def test_the_tolerance_of_a_narrower_dtype_is_larger():
    half = XS.astype(jnp.bfloat16)
    same_numbers(lambda x: x.astype(jnp.float32) @ W, lambda x: x @ W.astype(jnp.bfloat16), half)
    with pytest.raises(CheckError, match="differ first at"):
        same_numbers(
            lambda x: x @ W,
            lambda x: (x.astype(jnp.bfloat16) @ W.astype(jnp.bfloat16)).astype(jnp.float32),
            XS,
        )


def test_another_order_of_a_long_sum_is_rounding():
    x = jax.random.normal(jax.random.key(2), (100_000,))

    def one_by_one(x):
        return jax.lax.scan(lambda total, each: (total + each, None), 0.0, jnp.sort(x))[0]

    assert same_numbers(jnp.sum, one_by_one, x).facts["used"] > 1
    with pytest.raises(CheckError, match="differ first at the scalar"):
        same_numbers(jnp.sum, lambda x: jnp.sum(jnp.sort(x)[1:]), x)


def test_functions_that_draw_other_numbers_in_float64_still_have_a_tolerance():
    def noisy(x):
        return x + jax.random.normal(jax.random.key(0), x.shape)

    assert same_numbers(noisy, jax.jit(noisy), XS).facts["used"] < 1
    with pytest.raises(CheckError, match="float64 gives other numbers"):
        same_numbers(noisy, lambda x: noisy(x) * 1.01, XS)


def test_whole_numbers_are_exact_and_nan_is_nan():
    same_numbers(lambda x: jnp.array([jnp.nan, 1.0]), lambda x: jnp.array([jnp.nan, 1.0]), XS)
    with pytest.raises(CheckError, match=r"differ first at \[1\]: 2 and 3"):
        same_numbers(lambda x: np.array([1, 2]), lambda x: np.array([1, 3]), XS)
    with pytest.raises(CheckError, match="differ first at the scalar: nan and 1"):
        same_numbers(lambda x: jnp.nan, lambda x: 1.0, XS)


def test_results_of_another_shape_are_named_by_their_path():
    with pytest.raises(
        CheckError, match=r"\['h'\] is float32\[3\] in the_other and float32\[2\] in the_reference"
    ):
        same_numbers(lambda: {"h": jnp.ones(2)}, lambda: {"h": jnp.ones(3)})


def test_a_tolerance_can_be_given():
    same_numbers(lambda: 1.0, lambda: 1.1, tolerance=0.2)
    with pytest.raises(CheckError, match=r"rounding explains 0.05 at most \(the tolerance given\)"):
        same_numbers(lambda: 1.0, lambda: 1.1, tolerance=0.05)
