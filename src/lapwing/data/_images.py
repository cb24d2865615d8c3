"""Labelled images in memory, as bytes, and epochs over them.

An epoch is a permutation of the training examples. It is part of the training state, so that a step only slices it.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int32, Key, UInt8

from lapwing.core import LapwingError

DATA = "LAPWING_DATA"
CUT_SHORT = "it is truncated or another format; get another copy"
WAIVE = "or, for other images in the same format, give --no-verify"


class ImageFileError(LapwingError, ValueError):
    """Missing or invalid image files."""


class LabelledImages(NamedTuple):
    """Images as bytes from 0 to `white`, and their labels.

    >>> images = LabelledImages(np.array([[[[0], [255]]]], np.uint8), np.array([7], np.int32), white=255)
    >>> images.shape, images.pixels(slice(1)).tolist()
    ((1, 2, 1), [[[[0.0], [1.0]]]])
    """

    bytes: UInt8[np.ndarray, "count height width channels"]
    labels: Int32[np.ndarray, " count"]
    white: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of one image."""
        return self.bytes.shape[1:]

    def pixels(self, which: Any = slice(None)) -> Float[Array, "selected height width channels"]:
        """The selected images with pixels from 0 to 1. With traced indices a compiled step holds the bytes, a quarter
        of the size."""
        return jnp.asarray(self.bytes)[which].astype(jnp.float32) / self.white


class ImageSplits(NamedTuple):
    """Images for training, for evaluation during training, and for the final report.

    >>> def black(count):
    ...     return LabelledImages(np.zeros((count, 8, 8, 1), np.uint8), np.zeros(count, np.int32), white=255)
    >>> splits = ImageSplits(train=black(9), validation=black(1), test=black(2))
    >>> [len(part.labels) for part in splits], splits.train.shape
    ([9, 1, 2], (8, 8, 1))
    """

    train: LabelledImages
    validation: LabelledImages
    test: LabelledImages


def path_of(data: str, what: str, instead: str = "") -> Path:
    """Where the user has the files: `data`, by default the variable LAPWING_DATA."""
    named = data or os.environ.get(DATA, "")
    if not named:
        raise ImageFileError(f"expected {what}; give it with --data PATH or {DATA}{instead}")
    path = Path(named)
    if not path.exists():
        raise ImageFileError(f"expected {what}, but there is none at {named!r}")
    return path


def epoch_order(key: Key[Array, ""], count: int) -> Int32[Array, " count"]:
    """A random order of the examples for one epoch.

    >>> sorted(epoch_order(jax.random.key(0), 3).tolist())
    [0, 1, 2]
    """
    return jax.random.permutation(key, count).astype(jnp.int32)


def epoch_batch(
    key: Key[Array, ""],
    step: Int[Array, ""],
    order: Int32[Array, " count"],
    size: int,
    repeats: int = 1,
) -> tuple[Int32[Array, " size"], Int32[Array, " count"]]:
    """The examples of a step's batch, and the order for the next step: a new one at the start of an epoch.

    Each batch of `size` examples is used for `repeats` steps; a last, incomplete batch is dropped.

    >>> order = epoch_order(jax.random.key(0), 7)
    >>> first, order = epoch_batch(jax.random.key(1), jnp.int32(0), order, 3)
    >>> second, order = epoch_batch(jax.random.key(2), jnp.int32(1), order, 3)
    >>> len({*first.tolist(), *second.tolist()})
    6
    """
    count = order.shape[0]
    if not 1 <= size <= count:
        raise ImageFileError(f"expected a batch of 1 to {count} examples, found {size}")
    at = step % (count // size * repeats)
    order = jax.lax.cond(at == 0, lambda: epoch_order(key, count), lambda: order)
    return jax.lax.dynamic_slice(order, (at // repeats * size,), (size,)), order
