"""Images of handwritten digits: the 8×8 ones bundled with scikit-learn (the default), or MNIST from its four files.

MNIST is read from IDX files, raw or gzipped. Counts and checksums are verified, because a truncated or swapped file
trains just as well and only the results are wrong.

An epoch is a permutation of the training examples. It is part of the training state, so that a step only slices it.
"""

import gzip
import hashlib
import math
import os
import struct
import zlib
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int32, Key, UInt8

from lapwing.core import LapwingError, UnreadableError, open_regular

DATA = "LAPWING_DATA"
Source = Literal["digits", "mnist"]
"""Where images come from: the 8×8 digits that scikit-learn bundles, or MNIST."""

_SMALL_SPLITS = (1200, 200, 397)  # Training, validation, test.
_VALIDATION = 5000  # The last of MNIST's 60,000 training images.
_CUT_SHORT = "it is truncated or another format; get another copy"


class DigitsError(LapwingError, ValueError):
    """Missing or invalid image files."""


class Digits(NamedTuple):
    """Images as bytes from 0 to `white`, and their labels."""

    bytes: UInt8[np.ndarray, "count height width 1"]
    labels: Int32[np.ndarray, " count"]
    white: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of one image."""
        return self.bytes.shape[1:]

    def pixels(self, which: Any = slice(None)) -> Float[Array, "selected height width 1"]:
        """The selected images with pixels from 0 to 1. With traced indices a compiled step holds the bytes, a quarter
        of the size."""
        return jnp.asarray(self.bytes)[which].astype(jnp.float32) / self.white


class DigitSplits(NamedTuple):
    """Images for training, for evaluation during training, and for the final report."""

    train: Digits
    validation: Digits
    test: Digits


class _File(NamedTuple):
    """A file of MNIST: its name, the magic number and sizes in its header, and the MD5 of its uncompressed content."""

    name: str
    magic: int
    sizes: tuple[int, ...]
    md5: str


_MNIST = (
    _File("train-images-idx3-ubyte", 2051, (60000, 28, 28), "6bbc9ace898e44ae57da46a324031adb"),
    _File("train-labels-idx1-ubyte", 2049, (60000,), "a25bea736e30d166cdddb491f175f624"),
    _File("t10k-images-idx3-ubyte", 2051, (10000, 28, 28), "2646ac647ad5339dbf082846283269ea"),
    _File("t10k-labels-idx1-ubyte", 2049, (10000,), "27ae3e4e09519cfbb04c329615203637"),
)


def load_digits(source: Source = "digits", data: str = "") -> DigitSplits:
    """Loads the images; MNIST from the folder `data`, by default the one in the variable LAPWING_DATA.

    >>> splits = load_digits()
    >>> splits.train.bytes.shape, splits.test.labels.shape
    ((1200, 8, 8, 1), (397,))
    """
    return _small() if source == "digits" else _mnist(_folder(data))


def _small() -> DigitSplits:
    try:
        from sklearn.datasets import load_digits as bundled
    except ImportError:
        raise DigitsError(
            "the 8×8 digits come with scikit-learn, which is not installed; pip install 'lapwing[digits]', or use MNIST"
        ) from None
    found: Any = bundled()
    # The file is sorted by writer, so the splits are shuffled, always the same way.
    order = np.random.default_rng(0).permutation(len(found.target))
    images = found.images[order].astype(np.uint8)[..., None]
    labels = found.target[order].astype(np.int32)
    a, b = _SMALL_SPLITS[0], _SMALL_SPLITS[0] + _SMALL_SPLITS[1]
    parts = np.split(np.arange(len(labels)), [a, b])
    return DigitSplits(*(Digits(images[part], labels[part], 16) for part in parts))


def _folder(data: str) -> Path:
    named = data or os.environ.get(DATA, "")
    if not named:
        raise DigitsError(
            f"expected the folder with MNIST's four files; give it with --data DIR or {DATA}, or use the bundled digits"
        )
    folder = Path(named)
    if not folder.is_dir():
        raise DigitsError(f"expected a folder with MNIST's four files, but there is none at {named!r}")
    return folder


def _mnist(folder: Path) -> DigitSplits:
    images, labels, test_images, test_labels = (_read(folder, file) for file in _MNIST)
    cut = len(labels) - _VALIDATION
    parts = (images[:cut], labels[:cut]), (images[cut:], labels[cut:]), (test_images, test_labels)
    return DigitSplits(*(Digits(x[..., None], y.astype(np.int32), 255) for x, y in parts))


def _read(folder: Path, file: _File) -> np.ndarray:
    path, content = _content(folder, file)
    header = 4 * (1 + len(file.sizes))
    if len(content) < header:
        raise DigitsError(f"{path.name} has {len(content)} bytes, fewer than its header; {_CUT_SHORT}")
    magic, *sizes = struct.unpack(f">{1 + len(file.sizes)}I", content[:header])
    if magic != file.magic:
        raise DigitsError(
            f"{path.name} has the magic number {magic}, but IDX files of this kind have {file.magic}; "
            "perhaps two files have swapped names"
        )
    expected = (*file.sizes,)
    if tuple(sizes) != expected:
        raise DigitsError(f"{path.name} declares {_sizes(sizes)}, but MNIST's has {_sizes(expected)}")
    whole = header + math.prod(expected)
    if len(content) != whole:
        count = len(content) if len(content) < whole else "more"
        raise DigitsError(f"{path.name} should have {whole} bytes, but has {count}; {_CUT_SHORT}")
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != file.md5:
        raise DigitsError(
            f"{path.name} has the MD5 sum {found} instead of {file.md5}: it is damaged or not MNIST; get another copy"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(expected)


def _content(folder: Path, file: _File) -> tuple[Path, bytes]:
    """The content, of which no more is read than a sound file has and one byte: a small one may unpack to any size."""
    raw, packed = folder / file.name, folder / f"{file.name}.gz"
    most = 4 * (1 + len(file.sizes)) + math.prod(file.sizes) + 1
    try:
        if raw.is_file():
            with open_regular(raw) as plain:
                return raw, plain.read(most)
        if packed.is_file():
            with open_regular(packed) as compressed, gzip.open(compressed) as unpacked:
                return packed, unpacked.read(most)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DigitsError(f"{packed.name} cannot be uncompressed ({error}); {_CUT_SHORT}") from None
    except OSError as error:
        raise DigitsError(f"cannot read {file.name}: {error.strerror}") from None
    except UnreadableError as error:
        raise DigitsError(f"cannot read {file.name}: {error}") from None
    raise DigitsError(
        f"expected {file.name} or {packed.name} in {str(folder)!r}, found neither; "
        "see docs/adversarial.md for where to get the four files"
    )


def _sizes(sizes: Any) -> str:
    return "×".join(map(str, sizes))


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
        raise DigitsError(f"expected a batch of 1 to {count} examples, found {size}")
    at = step % (count // size * repeats)
    order = jax.lax.cond(at == 0, lambda: epoch_order(key, count), lambda: order)
    return jax.lax.dynamic_slice(order, (at // repeats * size,), (size,)), order
