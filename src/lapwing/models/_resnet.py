"""A small residual network for colour images, with width factor w: a 3×3 convolution, three stages of residual blocks
with 8w, 16w and 32w channels, of which the second and the third halve the image, the mean over what is left, and class
scores. w = 8 with two blocks a stage is about a ResNet-18 without its last stage.

Each block is norm, ReLU, convolution, twice, added to its input (He et al. 2016). The norms are over groups of channels
of one image (Wu and He 2018) and not over the batch: an attack on one image must not depend on the others, and batch
statistics differ between images and attacked ones. The last convolution of a block begins at 0, so that at first each
block passes its input on.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from lapwing.core import LapwingError

_DIMENSIONS = ("NHWC", "HWIO", "NHWC")
_GROUP = 8  # Channels that share a norm.

Images = Float[Array, "batch height width channels"]
Features = Float[Array, "batch rows columns features"]


class ResNetError(LapwingError, ValueError):
    """An invalid size of a network."""


class _Norm(eqx.Module):
    scale: Float[Array, " features"]
    bias: Float[Array, " features"]

    def __call__(self, features: Features) -> Features:
        count, rows, columns, width = features.shape
        groups = features.reshape(count, rows, columns, width // _GROUP, _GROUP)
        mean = jnp.mean(groups, axis=(1, 2, 4), keepdims=True)
        variance = jnp.var(groups, axis=(1, 2, 4), keepdims=True)
        normal = ((groups - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(features.shape)
        return normal * self.scale + self.bias


class _Block(eqx.Module):
    norm1: _Norm
    kernel1: Float[Array, "3 3 inputs outputs"]
    norm2: _Norm
    kernel2: Float[Array, "3 3 outputs outputs"]
    shortcut: Float[Array, "1 1 inputs outputs"] | None
    """Present where the block changes the number of channels, and then it halves the image too."""

    def __call__(self, features: Features) -> Features:
        stride = 1 if self.shortcut is None else 2
        hidden = jax.nn.relu(self.norm1(features))
        kept = features if self.shortcut is None else _convolve(hidden, self.shortcut, stride)
        hidden = _convolve(hidden, self.kernel1, stride)
        return kept + _convolve(jax.nn.relu(self.norm2(hidden)), self.kernel2)


class ResNet(eqx.Module):
    """A classifier of images; calling it gives the class scores.

    >>> network = ResNet.init(jax.random.key(0), shape=(8, 8, 3), width=1, blocks=1)
    >>> network(jnp.zeros((2, 8, 8, 3))).shape
    (2, 10)
    """

    stem: Float[Array, "3 3 channels 8w"]
    blocks: tuple[_Block, ...]
    norm: _Norm
    out: Float[Array, "32w classes"]
    out_bias: Float[Array, " classes"]

    @classmethod
    def init(
        cls,
        key: Key[Array, ""],
        shape: tuple[int, int, int],
        width: int = 8,
        blocks: int = 2,
        classes: int = 10,
    ) -> "ResNet":
        """A randomly initialized network for images of shape (height, width, channels)."""
        if min(shape[:2]) < 4:
            raise ResNetError(
                "expected images of at least 4×4 pixels, since their sides are halved twice, found "
                f"{shape[0]}×{shape[1]}"
            )
        if width < 1 or blocks < 1:
            raise ResNetError(f"expected a width factor and blocks of at least 1, found {width} and {blocks}")
        stages = [_GROUP * width * factor for factor in (1, 2, 4)]
        sizes = [stages[0]] + [size for size in stages for _ in range(blocks)]
        stem_key, out_key, *keys = jax.random.split(key, 2 + 3 * blocks)
        return cls(
            stem=_normal(stem_key, (3, 3, shape[2], stages[0])),
            blocks=tuple(_block(key, *pair) for key, *pair in zip(keys, sizes, sizes[1:], strict=False)),
            norm=_norm(stages[-1]),
            out=_normal(out_key, (stages[-1], classes), 1.0),
            out_bias=jnp.zeros(classes),
        )

    def __call__(self, images: Images) -> Float[Array, "batch classes"]:
        hidden = _convolve(images - 0.5, self.stem)
        for block in self.blocks:
            hidden = block(hidden)
        return jnp.mean(jax.nn.relu(self.norm(hidden)), axis=(1, 2)) @ self.out + self.out_bias


def _block(key: Key[Array, ""], inputs: int, outputs: int) -> _Block:
    first, second = jax.random.split(key)
    return _Block(
        norm1=_norm(inputs),
        kernel1=_normal(first, (3, 3, inputs, outputs)),
        norm2=_norm(outputs),
        kernel2=jnp.zeros((3, 3, outputs, outputs)),
        shortcut=None if inputs == outputs else _normal(second, (1, 1, inputs, outputs), 1.0),
    )


def _norm(width: int) -> _Norm:
    return _Norm(jnp.ones(width), jnp.zeros(width))


def _convolve(
    features: Features, kernel: Float[Array, "rows columns inputs outputs"], stride: int = 1
) -> Features:
    return jax.lax.conv_general_dilated(
        features, kernel, (stride, stride), "SAME", dimension_numbers=_DIMENSIONS
    )


def _normal(key: Key[Array, ""], shape: tuple[int, ...], gain: float = 2.0) -> Array:
    return math.sqrt(gain / math.prod(shape[:-1])) * jax.random.normal(key, shape)
