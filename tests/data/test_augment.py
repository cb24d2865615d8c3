"""Augmentation against plain numpy, and perturbations that move along with their image."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.data import Augmentation
from tests.slow import some

IMAGES = np.random.default_rng(0).random((40, 6, 5, 2)).astype(np.float32)
KINDS = [Augmentation(), Augmentation(1), Augmentation(2, flip=True), Augmentation(flip=True)]


def plainly(augmentation: Augmentation, image: np.ndarray, view: int) -> np.ndarray:
    """One image, by loops: pixel (i, j) is that of the image `shift` less than its place further, or 0."""
    side, most = 2 * augmentation.shift + 1, augmentation.shift
    mirrored, place = divmod(view, side**2)
    row, column = divmod(place, side)
    made = np.zeros_like(image)
    height, width, _ = image.shape
    for i in range(height):
        for j in range(width):
            a, b = i + row - most, j + column - most
            if 0 <= a < height and 0 <= b < width:
                made[i, j] = image[a, b]
    return made[:, ::-1] if mirrored else made


@pytest.mark.parametrize("augmentation", some(KINDS, 2, 3), ids=str)
def test_views_are_those_of_plain_loops_and_undone_where_they_overlap(augmentation: Augmentation):
    view = augmentation.draw(jax.random.key(0), 40)
    seen = augmentation.apply(jnp.asarray(IMAGES), view)
    expected = [plainly(augmentation, image, int(v)) for image, v in zip(IMAGES, view, strict=True)]
    np.testing.assert_array_equal(seen, np.stack(expected))
    back = np.asarray(augmentation.undo(seen, view))
    inside = np.asarray(augmentation.undo(augmentation.apply(jnp.ones_like(IMAGES), view), view)) > 0
    np.testing.assert_array_equal(back, np.where(inside, IMAGES, 0))
    assert inside.mean() > 0.5
    unchanged = augmentation.unchanged(40)
    np.testing.assert_array_equal(augmentation.apply(jnp.asarray(IMAGES), unchanged), IMAGES)


def test_all_views_are_drawn_and_by_the_key_alone():
    augmentation = Augmentation(1, flip=True)
    views = augmentation.draw(jax.random.key(1), 1000)
    assert set(views.tolist()) == set(range(18))
    np.testing.assert_array_equal(views, augmentation.draw(jax.random.key(1), 1000))
