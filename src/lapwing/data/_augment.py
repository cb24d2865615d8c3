"""Augmentation of images on the device: random crops of padded images, and mirror images.

Both are drawn from a key inside the compiled step, so a resumed run draws the same. What was done to an image is one
number, its view, with which a perturbation moves along: one that was found for another view of the image is moved to
this one, where the two overlap. So perturbations can be kept in the frame of the image, whatever view each step draws.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

Images = Float[Array, "batch height width channels"]
View = Int[Array, " batch"]


@dataclass(frozen=True)
class Augmentation:
    """Shifts of up to `shift` pixels in each direction, which bring in zeros, and with `flip` mirror images.

    >>> augmentation = Augmentation(shift=1, flip=True)
    >>> images = jnp.arange(9.0).reshape(1, 3, 3, 1)
    >>> augmentation.apply(images, augmentation.unchanged(1)).tolist() == images.tolist()
    True
    """

    shift: int = 0
    flip: bool = False

    def draw(self, key: Key[Array, ""], count: int) -> View:
        """A random view for each of `count` images."""
        return jax.random.randint(key, (count,), 0, self._side**2 * (2 if self.flip else 1))

    def unchanged(self, count: int) -> View:
        """The view that leaves an image as it is."""
        return jnp.full(count, self.shift * self._side + self.shift, jnp.int32)

    def apply(self, images: Images, view: View) -> Images:
        """Each image, or perturbation, in its view."""
        if not (self.shift or self.flip):
            return images
        rows, columns, mirrored = self._parts(view)
        return _mirror(self._crop(images, rows, columns), mirrored)

    def undo(self, images: Images, view: View) -> Images:
        """Perturbations of views, back in the frame of the image; what is outside the view is 0."""
        if not (self.shift or self.flip):
            return images
        rows, columns, mirrored = self._parts(view)
        return self._crop(_mirror(images, mirrored), 2 * self.shift - rows, 2 * self.shift - columns)

    @property
    def _side(self) -> int:
        return 2 * self.shift + 1

    def _parts(self, view: View) -> tuple[View, View, View]:
        place = view % self._side**2
        return place // self._side, place % self._side, view // self._side**2

    def _crop(self, images: Images, rows: View, columns: View) -> Images:
        if not self.shift:
            return images
        padded = jnp.pad(images, ((0, 0), (self.shift,) * 2, (self.shift,) * 2, (0, 0)))

        def crop(image: Array, row: Array, column: Array) -> Array:
            return jax.lax.dynamic_slice(image, (row, column, 0), images.shape[1:])

        return jax.vmap(crop)(padded, rows, columns)


def _mirror(images: Images, mirrored: View) -> Images:
    return jnp.where(mirrored[:, None, None, None] > 0, images[:, :, ::-1], images)
