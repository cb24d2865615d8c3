"""The residual network: its size, what it depends on, and its norm against a plain one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.models import ResNet, ResNetError
from lapwing.models._resnet import _norm

NETWORK = jax.jit(lambda key: ResNet.init(key, (8, 8, 3), width=1, blocks=1))(jax.random.key(0))
IMAGES = jax.random.uniform(jax.random.key(1), (3, 8, 8, 3))


@pytest.mark.slow
def test_an_image_does_not_depend_on_its_batch_and_every_leaf_is_an_array_that_learns():
    scores = jax.jit(NETWORK.__call__)
    np.testing.assert_allclose(scores(IMAGES)[1], scores(IMAGES.at[0].set(0.0).at[2].mul(9.0))[1], atol=1e-5)
    # Blocks begin as the identity: moved away from there, every parameter has a gradient.
    numbers = np.random.default_rng(0)
    moved = jax.tree.map(
        lambda leaf: leaf + 0.1 * numbers.normal(size=leaf.shape).astype(np.float32), NETWORK
    )
    slopes = jax.jit(jax.grad(lambda network: jnp.sum(jnp.sin(network(IMAGES)))))(moved)
    assert all(float(jnp.abs(slope).max()) > 0 for slope in jax.tree.leaves(slopes))


def test_a_network_of_width_8_has_the_stated_channels():
    made = jax.eval_shape(lambda key: ResNet.init(key, (32, 32, 3)), jax.random.key(0))
    assert [block.kernel1.shape[2:] for block in made.blocks] == [
        (64, 64),
        (64, 64),
        (64, 128),
        (128, 128),
        (128, 256),
        (256, 256),
    ]
    assert 2.7e6 < sum(leaf.size for leaf in jax.tree.leaves(made)) < 2.9e6


def test_norms_are_over_groups_of_channels_of_one_image():
    features = np.random.default_rng(0).normal(3.0, 2.0, (2, 4, 4, 16)).astype(np.float32)
    found = np.asarray(_norm(16)(jnp.asarray(features)))
    for image in range(2):
        for first in (0, 8):
            part = features[image, :, :, first : first + 8]
            plain = (part - part.mean()) / np.sqrt(part.var() + 1e-5)
            np.testing.assert_allclose(found[image, :, :, first : first + 8], plain, atol=1e-4)


def test_sizes_that_make_no_sense_are_refused():
    with pytest.raises(ResNetError, match=r"at least 4×4 pixels, .* found 3×8"):
        ResNet.init(jax.random.key(0), (3, 8, 3))
    with pytest.raises(ResNetError, match="width factor and blocks of at least 1, found 0 and 2"):
        ResNet.init(jax.random.key(0), (8, 8, 3), width=0)
