import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing import check
from lapwing.models import Cnn, CnnError
from lapwing.models._cnn import _by_bands, _by_convolution, _max_pool, _pooled, _pooled_by_blocks


@pytest.mark.slow
def test_the_width_factor_makes_the_layers():
    network = Cnn.init(jax.random.key(0), (28, 28, 1), width=16)
    assert network.kernel1.shape == (5, 5, 1, 32)
    assert network.kernel2.shape == (5, 5, 32, 64)
    assert network.dense.shape == (7 * 7 * 64, 1024)
    assert network.out.shape == (1024, 10)


def test_a_product_with_bands_is_a_convolution():
    images, kernel = (
        jax.random.normal(jax.random.key(i), s) for i, s in enumerate([(3, 9, 7, 2), (5, 5, 2, 4)])
    )
    np.testing.assert_allclose(_by_bands(images, kernel), _by_convolution(images, kernel), atol=1e-4)


@pytest.mark.parametrize("shape", [(3, 8, 12, 2), (2, 9, 7, 3)])
def test_convolution_and_pooling_by_blocks_are_the_same(shape: tuple[int, ...]):
    images = jax.random.normal(jax.random.key(0), shape)
    kernel = jax.random.normal(jax.random.key(1), (5, 5, shape[-1], 4))

    def plain(images: jax.Array, kernel: jax.Array) -> jax.Array:
        return _max_pool(_by_convolution(images, kernel))

    def slopes(pooled, *values: jax.Array):
        return jax.grad(lambda *values: jnp.sum(jnp.cos(pooled(*values))), (0, 1))(*values)

    expected, slope, of_kernel = plain(images, kernel), *slopes(plain, images, kernel)
    for pooled in (_pooled_by_blocks, jax.jit(_pooled_by_blocks), jax.jit(_pooled)):
        np.testing.assert_allclose(pooled(images, kernel), expected, atol=1e-4)
        np.testing.assert_allclose(slopes(pooled, images, kernel)[0], slope, atol=1e-4)
        np.testing.assert_allclose(slopes(pooled, images, kernel)[1], of_kernel, atol=1e-3)
    two = jnp.stack([kernel, -kernel])
    many = jax.vmap(_pooled_by_blocks, (None, 0))(images, two)
    np.testing.assert_allclose(many, jax.vmap(plain, (None, 0))(images, two), atol=1e-4)


def test_the_maximum_over_four_pixels():
    images = jax.random.normal(jax.random.key(0), (2, 5, 7, 3))
    window = jax.lax.reduce_window(images, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    np.testing.assert_array_equal(_max_pool(images), window)
    slopes = jax.grad(lambda images: jnp.sum(_max_pool(images) * jnp.cos(window)))(images)
    largest = jnp.repeat(jnp.repeat(window, 2, axis=1), 2, axis=2) == images[:, :4, :6]
    expected = largest * jnp.repeat(jnp.repeat(jnp.cos(window), 2, axis=1), 2, axis=2)
    np.testing.assert_allclose(slopes[:, :4, :6], expected, atol=1e-6)
    assert not slopes[:, 4:].any()
    # Where all are equal one of them has the gradient, not all.
    equal = jax.grad(lambda images: jnp.sum(_max_pool(images)))(jnp.zeros((1, 2, 2, 1)))
    assert sorted(equal.ravel().tolist()) == [0, 0, 0, 1]


def test_with_thresholds_the_network_sees_how_far_a_pixel_is_above_each():
    network = Cnn.init(jax.random.key(0), (8, 8, 2), width=1, thresholds=3)
    assert network.kernel1.shape == (5, 5, 2 * 3, 2)
    network = dataclasses.replace(
        network, slope=jnp.array([1e3, 1e3, 4.0]), threshold=jnp.array([0.2, 0.5, 0.5])
    )
    pixels = jnp.array([0.1, 0.3]).reshape(1, 1, 1, 2)
    seen = network._seen(pixels)[0, 0, 0]
    np.testing.assert_allclose(seen, [0, 0, 1 / (1 + np.exp(1.6)), 1, 0, 1 / (1 + np.exp(0.8))], atol=1e-6)
    plain = Cnn.init(jax.random.key(0), (8, 8, 2), width=1)
    assert plain._seen(pixels) is pixels
    assert len(jax.tree.leaves(network)) == len(jax.tree.leaves(plain)) + 2


@pytest.mark.slow
def test_nothing_grows_or_shrinks_on_the_way_at_the_start():
    images = jax.random.normal(jax.random.key(1), (20, 28, 28, 1))
    for width in (1, 4):
        scores = jax.jit(Cnn.init(jax.random.key(0), (28, 28, 1), width).__call__)(images)
        assert 0.3 < float(jnp.std(scores)) < 3.0


@pytest.mark.slow
def test_the_doctor_finds_nothing():
    images = jax.random.uniform(jax.random.key(1), (6, 8, 8, 1))

    def loss(network: Cnn, images: jax.Array) -> jax.Array:
        return jnp.mean(network(images) ** 2)

    for thresholds in (0, 2):
        network = Cnn.init(jax.random.key(0), (8, 8, 1), width=1, thresholds=thresholds)
        check.batch_independence(network, images)
        check.dead_parameters(loss, network, [images])


def test_what_cannot_be_built_is_said():
    with pytest.raises(CnnError, match=r"at least 4×4 pixels.*found 3×8"):
        Cnn.init(jax.random.key(0), (3, 8, 1))
    with pytest.raises(CnnError, match="width factor of at least 1, found 0"):
        Cnn.init(jax.random.key(0), (8, 8, 1), width=0)
    with pytest.raises(CnnError, match="thresholds of at least 0, found -1"):
        Cnn.init(jax.random.key(0), (8, 8, 1), thresholds=-1)
