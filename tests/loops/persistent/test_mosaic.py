"""What is computed around the tensor cores, in plain jax."""

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.loops.persistent._kernel import _mosaic as mosaic


def test_numbers_are_rounded_to_what_the_tensor_cores_multiply():
    """To the nearest number with ten bits of fraction: half as far off as cutting off, and in both directions."""
    values = jax.random.normal(jax.random.key(0), (4096,)) * 10.0 ** jnp.arange(-8, 8).repeat(256)
    rounded = np.asarray(mosaic.as_multiplied(values), np.float64)
    exact = np.asarray(values, np.float64)
    nearest = np.asarray(jax.lax.reduce_precision(values, 8, 10), np.float64)
    np.testing.assert_array_equal(np.abs(rounded - exact), np.abs(nearest - exact))
    off = (np.abs(rounded) - np.abs(exact)) / np.abs(exact)
    assert np.max(np.abs(off)) <= 2.0**-11
    assert abs(np.mean(off)) < 2.0**-11 / 20


def test_what_is_not_a_number_stays_so():
    special = jnp.array([jnp.nan, -jnp.nan, jnp.inf, -jnp.inf, 0.0, -0.0])
    np.testing.assert_array_equal(mosaic.as_multiplied(special), special)
    assert np.signbit(mosaic.as_multiplied(special)[-1])


def test_halves_are_multiplied_as_they_are():
    for dtype in (jnp.bfloat16, jnp.float16):
        values = jnp.linspace(-1, 1, 99).astype(dtype)
        assert mosaic.as_multiplied(values) is values
