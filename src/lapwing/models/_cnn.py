"""The convolutional network of seed 004, with its width factor w: two convolutions of 5×5 with 2w and 4w channels, each
followed by a maximum over 2×2, a dense layer of 64w, and a score for each class. w = 16 is the usual network for MNIST.

The initialisation keeps the size of what flows through (He et al. 2015): weights normal with variance 2 / inputs before
a rectifier and 1 / inputs before the scores, biases zero.

Three things are written otherwise than usual because they are faster. The maximum over 2×2 is that of two rows and
then of two columns: its gradient is a choice between two, where that of a sliding window is a scatter. Bias and
rectifier come after it, on a quarter of the pixels, which is the same since both only rise. And on a CPU a convolution
is one matrix product of image rows with a band matrix, which is mostly zeros and still several times faster than XLA's
convolutions are there inside a loop, and than a product of patches; elsewhere it is a convolution.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lapwing.core import LapwingError

_KERNEL = 5
_DIMENSIONS = ("NHWC", "HWIO", "NHWC")


class CnnError(LapwingError, ValueError):
    """A network that cannot be built."""


class Cnn(eqx.Module):
    """A classifier of images. Called with images it gives the scores of the classes.

    >>> network = Cnn.init(jax.random.key(0), shape=(8, 8, 1), width=2)
    >>> network(jnp.zeros((3, 8, 8, 1))).shape
    (3, 10)
    """

    kernel1: Float[Array, "5 5 channels 2w"]
    bias1: Float[Array, "2w"]
    kernel2: Float[Array, "5 5 2w 4w"]
    bias2: Float[Array, "4w"]
    dense: Float[Array, "pixels 64w"]
    dense_bias: Float[Array, "64w"]
    out: Float[Array, "64w classes"]
    out_bias: Float[Array, " classes"]

    @classmethod
    def init(cls, key: jax.Array, shape: tuple[int, int, int], width: int = 16, classes: int = 10) -> "Cnn":
        """A network for images of this shape (height, width, channels) with random weights."""
        height, across, channels = shape
        if height < 4 or across < 4:
            raise CnnError(
                f"expected images of at least 4×4 pixels, since their sides are halved twice, found {height}×{across}"
            )
        if width < 1:
            raise CnnError(f"expected a width factor of at least 1, found {width}")
        pixels = (height // 4) * (across // 4) * 4 * width
        keys = jax.random.split(key, 4)
        return cls(
            kernel1=_normal(keys[0], (_KERNEL, _KERNEL, channels, 2 * width), 2.0),
            bias1=jnp.zeros(2 * width),
            kernel2=_normal(keys[1], (_KERNEL, _KERNEL, 2 * width, 4 * width), 2.0),
            bias2=jnp.zeros(4 * width),
            dense=_normal(keys[2], (pixels, 64 * width), 2.0),
            dense_bias=jnp.zeros(64 * width),
            out=_normal(keys[3], (64 * width, classes), 1.0),
            out_bias=jnp.zeros(classes),
        )

    def __call__(self, images: Float[Array, "batch height width channels"]) -> Float[Array, "batch classes"]:
        hidden = jax.nn.relu(_pooled(_convolved(images, self.kernel1)) + self.bias1)
        hidden = jax.nn.relu(_pooled(_convolved(hidden, self.kernel2)) + self.bias2)
        hidden = jax.nn.relu(hidden.reshape(hidden.shape[0], -1) @ self.dense + self.dense_bias)
        return hidden @ self.out + self.out_bias


def _convolved(images: jax.Array, kernel: jax.Array) -> jax.Array:
    return jax.lax.platform_dependent(images, kernel, cpu=_by_bands, default=_by_convolution)


def _by_convolution(images: jax.Array, kernel: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=_DIMENSIONS)


def _by_bands(images: jax.Array, kernel: jax.Array) -> jax.Array:
    """A row of the result comes from five rows of the image, by the same matrix for all."""
    count, height, width, _ = images.shape
    edge = _KERNEL // 2
    # Which pixel of a row meets which column of the kernel, for each pixel of the result.
    meets = np.stack([np.eye(width, k=edge - column, dtype=np.float32) for column in range(_KERNEL)])
    band = jnp.einsum("ijco,jxy->ixcyo", kernel, meets).reshape(-1, width * kernel.shape[-1])
    padded = jnp.pad(images, ((0, 0), (edge, edge), (0, 0), (0, 0))).reshape(count, height + 2 * edge, -1)
    rows = jnp.concatenate([padded[:, row : row + height] for row in range(_KERNEL)], axis=-1)
    return (rows @ band).reshape(count, height, width, -1)


def _pooled(images: jax.Array) -> jax.Array:
    """The maximum of every 2×2 pixels; a last row or column without a partner is left out."""
    count, height, width, channels = images.shape
    even = images[:, : height // 2 * 2, : width // 2 * 2]
    pairs = even.reshape(count, height // 2, 2, width // 2, 2, channels)
    rows = jnp.maximum(pairs[:, :, 0], pairs[:, :, 1])
    return jnp.maximum(rows[..., 0, :], rows[..., 1, :])


def _normal(key: jax.Array, shape: tuple[int, ...], gain: float) -> jax.Array:
    inputs = math.prod(shape[:-1])
    return math.sqrt(gain / inputs) * jax.random.normal(key, shape)
