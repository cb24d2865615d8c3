"""Images of handwritten digits: the 8×8 ones bundled with scikit-learn (the default), or MNIST from its four files.

MNIST is read from IDX files, raw or gzipped. Counts and checksums are verified, because a truncated or swapped file
trains just as well and only the results are wrong.
"""

import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from lapwing.core import UnreadableError, open_regular

from ._images import CUT_SHORT, WAIVE, ImageFileError, ImageSplits, LabelledImages, path_of

_SMALL_SPLITS = (1200, 200, 397)  # Training, validation, test.
_VALIDATION = 5000  # The last of MNIST's 60,000 training images.
_FOLDER = "a folder with MNIST's four files"


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


def load_digits(
    source: Literal["digits", "mnist"] = "digits", data: str = "", *, verify: bool = True
) -> ImageSplits:
    """Loads the images; MNIST from the folder `data`, by default the one in the variable LAPWING_DATA.

    **Arguments:** without `verify`, any images in the format of MNIST are accepted (Fashion-MNIST).

    >>> splits = load_digits()
    >>> splits.train.bytes.shape, splits.test.labels.shape
    ((1200, 8, 8, 1), (397,))
    """
    if source == "digits":
        return _small()
    folder = path_of(data, _FOLDER, ", or use the bundled digits")
    if not folder.is_dir():
        raise ImageFileError(f"expected {_FOLDER}, but {data!r} is a file")
    return _mnist(folder, verify)


def _small() -> ImageSplits:
    try:
        from sklearn.datasets import load_digits as bundled
    except ImportError:
        raise ImageFileError(
            "the 8×8 digits come with scikit-learn, which is not installed; pip install 'lapwing[digits]', or use MNIST"
        ) from None
    found: Any = bundled()
    # The file is sorted by writer, so the splits are shuffled, always the same way.
    order = np.random.default_rng(0).permutation(len(found.target))
    images = found.images[order].astype(np.uint8)[..., None]
    labels = found.target[order].astype(np.int32)
    a, b = _SMALL_SPLITS[0], _SMALL_SPLITS[0] + _SMALL_SPLITS[1]
    parts = np.split(np.arange(len(labels)), [a, b])
    return ImageSplits(*(LabelledImages(images[part], labels[part], 16) for part in parts))


def _mnist(folder: Path, verify: bool) -> ImageSplits:
    images, labels, test_images, test_labels = (_read(folder, file, verify) for file in _MNIST)
    cut = len(labels) - _VALIDATION
    parts = (images[:cut], labels[:cut]), (images[cut:], labels[cut:]), (test_images, test_labels)
    return ImageSplits(*(LabelledImages(x[..., None], y.astype(np.int32), 255) for x, y in parts))


def _read(folder: Path, file: _File, verify: bool) -> np.ndarray:
    path, content = _content(folder, file)
    header = 4 * (1 + len(file.sizes))
    if len(content) < header:
        raise ImageFileError(f"{path.name} has {len(content)} bytes, fewer than its header; {CUT_SHORT}")
    magic, *sizes = struct.unpack(f">{1 + len(file.sizes)}I", content[:header])
    if magic != file.magic:
        raise ImageFileError(
            f"{path.name} has the magic number {magic}, but IDX files of this kind have {file.magic}; "
            "perhaps two files have swapped names"
        )
    expected = (*file.sizes,)
    if tuple(sizes) != expected:
        raise ImageFileError(f"{path.name} declares {_sizes(sizes)}, but MNIST's has {_sizes(expected)}")
    whole = header + math.prod(expected)
    if len(content) != whole:
        count = len(content) if len(content) < whole else "more"
        raise ImageFileError(f"{path.name} should have {whole} bytes, but has {count}; {CUT_SHORT}")
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if verify and found != file.md5:
        raise ImageFileError(
            f"{path.name} has the MD5 sum {found} instead of {file.md5}: it is damaged or not MNIST; get another copy, "
            f"{WAIVE}"
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
        raise ImageFileError(f"{packed.name} cannot be uncompressed ({error}); {CUT_SHORT}") from None
    except OSError as error:
        raise ImageFileError(f"cannot read {file.name}: {error.strerror}") from None
    except UnreadableError as error:
        raise ImageFileError(f"cannot read {file.name}: {error}") from None
    raise ImageFileError(
        f"expected {file.name} or {packed.name} in {str(folder)!r}, found neither; "
        "see docs/adversarial.md for where to get the four files"
    )


def _sizes(sizes: Any) -> str:
    return "×".join(map(str, sizes))
