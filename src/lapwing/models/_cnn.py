"""A convolutional network for small images with width factor w: two 5×5 convolutions of 2w and 4w channels, each
followed by 2×2 max pooling, a dense layer of 64w units, and class scores. w = 16 is the usual network for MNIST.

He initialization (2015): normal weights of variance 2 / inputs before a ReLU and 1 / inputs before the scores.

With `thresholds`, the first convolution sees each pixel as that many sigmoid(slope · (pixel − threshold)), all learned.
Networks that are trained against perturbations of 0.3 a pixel find such thresholds by themselves, late and in a few
filters of the first layer (Madry et al. 2018).

Four things differ from the usual code because they are faster. Max pooling takes the maximum of two rows and then of
two columns: its gradient is a select, that of a sliding window a scatter. Bias and ReLU come after pooling, on a
quarter of the pixels, which is the same because both are monotone. And on a CPU a convolution is one matrix product of
image rows with a banded matrix: mostly zeros, but several times faster than XLA's convolutions inside a loop. On a GPU
a convolution of few channels, such as those of thresholds, sees 2×2 pixels as one with four times as many.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from lapwing.core import LapwingError

_KERNEL = 5
_DIMENSIONS = ("NHWC", "HWIO", "NHWC")
# At first; a pixel then goes from 0.1 to 0.9 of a threshold within 0.18. A slope of 50 hides the gradient: on MNIST
# Square, which follows none, is then the strongest attack by 4 points.
_SLOPE = 25.0
_SPREAD = (0.2, 0.8)  # Thresholds are spread between these at first.
# Numbers of channels whose convolution is made of 2×2 blocks, but on a CPU. Measured with 4, those of four thresholds:
# AutoAttack takes 0.7 times as long on an H200. One channel has not been measured.
_BLOCKED = range(2, 16)

Images = Float[Array, "batch height width inputs"]
Convolved = Float[Array, "batch height width outputs"]
Pooled = Float[Array, "batch rows columns outputs"]
Kernel = Float[Array, "5 5 inputs outputs"]


class CnnError(LapwingError, ValueError):
    """An invalid size of a network."""


class Cnn(eqx.Module):
    """A classifier of images; calling it gives the class scores.

    >>> network = Cnn.init(jax.random.key(0), shape=(8, 8, 1), width=2)
    >>> network(jnp.zeros((3, 8, 8, 1))).shape
    (3, 10)
    """

    kernel1: Float[Array, "5 5 inputs 2w"]
    bias1: Float[Array, "2w"]
    kernel2: Float[Array, "5 5 2w 4w"]
    bias2: Float[Array, "4w"]
    dense: Float[Array, "pixels 64w"]
    dense_bias: Float[Array, "64w"]
    out: Float[Array, "64w classes"]
    out_bias: Float[Array, " classes"]
    slope: Float[Array, " thresholds"] | None = None
    threshold: Float[Array, " thresholds"] | None = None

    @classmethod
    def init(
        cls,
        key: Key[Array, ""],
        shape: tuple[int, int, int],
        width: int = 16,
        classes: int = 10,
        thresholds: int = 0,
    ) -> "Cnn":
        """A randomly initialized network for images of shape (height, width, channels), with this many thresholds for
        each pixel, or none."""
        height, across, channels = shape
        if height < 4 or across < 4:
            raise CnnError(
                f"expected images of at least 4×4 pixels, since their sides are halved twice, found {height}×{across}"
            )
        if width < 1:
            raise CnnError(f"expected a width factor of at least 1, found {width}")
        if thresholds < 0:
            raise CnnError(f"expected a number of thresholds of at least 0, found {thresholds}")
        pixels = (height // 4) * (across // 4) * 4 * width
        inputs = channels * max(thresholds, 1)
        keys = jax.random.split(key, 4)
        return cls(
            kernel1=_normal(keys[0], (_KERNEL, _KERNEL, inputs, 2 * width), 2.0),
            bias1=jnp.zeros(2 * width),
            kernel2=_normal(keys[1], (_KERNEL, _KERNEL, 2 * width, 4 * width), 2.0),
            bias2=jnp.zeros(4 * width),
            dense=_normal(keys[2], (pixels, 64 * width), 2.0),
            dense_bias=jnp.zeros(64 * width),
            out=_normal(keys[3], (64 * width, classes), 1.0),
            out_bias=jnp.zeros(classes),
            slope=jnp.full(thresholds, _SLOPE) if thresholds else None,
            threshold=jnp.linspace(*_SPREAD, thresholds + 2)[1:-1] if thresholds else None,
        )

    def __call__(self, images: Images) -> Float[Array, "batch classes"]:
        hidden = jax.nn.relu(
            _pooled(self._seen(images).astype(self.kernel1.dtype), self.kernel1) + self.bias1
        )
        hidden = jax.nn.relu(_pooled(hidden, self.kernel2) + self.bias2)
        hidden = jax.nn.relu(hidden.reshape(hidden.shape[0], -1) @ self.dense + self.dense_bias)
        return hidden @ self.out + self.out_bias

    def _seen(self, images: Images) -> Images:
        """The inputs of the first convolution: the pixels, or how far each is above each threshold."""
        if self.slope is None or self.threshold is None:
            return images
        above = jax.nn.sigmoid(self.slope * (images[..., None] - self.threshold))
        return above.reshape(*images.shape[:-1], -1)


def _pooled(images: Images, kernel: Kernel) -> Pooled:
    """The convolution of the images after pooling."""

    def on_cpu(images: Images, kernel: Kernel) -> Pooled:
        return _max_pool(_by_bands(images, kernel))

    def elsewhere(images: Images, kernel: Kernel) -> Pooled:
        if kernel.shape[2] in _BLOCKED:
            return _pooled_by_blocks(images, kernel)
        return _max_pool(_by_convolution(images, kernel))

    return jax.lax.platform_dependent(images, kernel, cpu=on_cpu, default=elsewhere)


def _by_convolution(images: Images, kernel: Kernel) -> Convolved:
    return jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=_DIMENSIONS)


def _by_bands(images: Images, kernel: Kernel) -> Convolved:
    """A row of the result is five rows of the image times a matrix, the same for all rows."""
    count, height, width, _ = images.shape
    edge = _KERNEL // 2
    # Which pixel of a row is multiplied by which column of the kernel, for each pixel of the result.
    shifts = np.stack([np.eye(width, k=edge - column, dtype=kernel.dtype) for column in range(_KERNEL)])
    band = jnp.einsum("ijco,jxy->ixcyo", kernel, shifts).reshape(-1, width * kernel.shape[-1])
    padded = jnp.pad(images, ((0, 0), (edge, edge), (0, 0), (0, 0))).reshape(count, height + 2 * edge, -1)
    rows = jnp.concatenate([padded[:, row : row + height] for row in range(_KERNEL)], axis=-1)
    return (rows @ band).reshape(count, height, width, -1)


def _pooled_by_blocks(images: Images, kernel: Kernel) -> Pooled:
    """Four pixels become one with four times the channels. The kernel of five pixels reaches over three such blocks, of
    the four outputs of a block each has its own shift of it, and pooling is the maximum of four slices. That is 1.44
    times the arithmetic, with as many channels as matrix units want."""
    count, height, width, channels = images.shape
    rows, columns = -(-height // 2), -(-width // 2)
    even = jnp.pad(images, ((0, 0), (0, 2 * rows - height), (0, 2 * columns - width), (0, 0)))
    blocks = even.reshape(count, rows, 2, columns, 2, channels).transpose(0, 1, 3, 2, 4, 5)
    shifts = [(row, column) for row in range(2) for column in range(2)]
    four = [jnp.pad(kernel, ((i, 1 - i), (j, 1 - j), (0, 0), (0, 0))) for i, j in shifts]
    wide = jnp.stack(four, axis=3).reshape(3, 2, 3, 2, channels, -1).transpose(0, 2, 1, 3, 4, 5)
    found = _by_convolution(blocks.reshape(count, rows, columns, -1), wide.reshape(3, 3, 4 * channels, -1))
    pairs = found[:, : height // 2, : width // 2].reshape(count, height // 2, width // 2, 2, 2, -1)
    larger = _larger(pairs[..., 0, :, :], pairs[..., 1, :, :])
    return _larger(larger[..., 0, :], larger[..., 1, :])


def _max_pool(images: Images) -> Pooled:
    """2×2 max pooling; an odd last row or column is dropped."""
    count, height, width, channels = images.shape
    even = images[:, : height // 2 * 2, : width // 2 * 2]
    pairs = even.reshape(count, height // 2, 2, width // 2, 2, channels)
    rows = _larger(pairs[:, :, 0], pairs[:, :, 1])
    return _larger(rows[..., 0, :], rows[..., 1, :])


def _larger(first: Array, second: Array) -> Array:
    """The maximum; of two equal values the second has the gradient. That of `jnp.maximum` gives half to each, and so
    compares and divides where this selects."""
    return jnp.where(first > second, first, second)


def _normal(key: Key[Array, ""], shape: tuple[int, ...], gain: float) -> Array:
    inputs = math.prod(shape[:-1])
    return math.sqrt(gain / inputs) * jax.random.normal(key, shape)
