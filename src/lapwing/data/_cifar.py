"""CIFAR-10 from the files of the user: the binary or the Python version, as an archive or a folder.

Nothing is downloaded and nothing is unpacked onto the disk. The files are compared with the published checksums; with
`verify=False` any images in the same format are read, so everything is bounded and checked as if somebody had made the
file to do harm: no pickle is run (see `_cifar_pickle`), and of an archive no more is read than a sound one has.
"""

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from lapwing.core import UnreadableError, open_regular, read_regular

from ._cifar_pickle import read_pickle
from ._images import CUT_SHORT, WAIVE, ImageFileError, ImageSplits, LabelledImages, path_of

_WHAT = (
    "the archive of CIFAR-10 (cifar-10-python.tar.gz or cifar-10-binary.tar.gz) or the folder it unpacks to"
)
_SHAPE = (3, 32, 32)
_RECORD = 1 + 3 * 32 * 32
_MOST_IMAGES = 10_000  # In a file.
_MOST_FILE = 32 << 20  # Bytes; a file of the Python version has 31 MB.
_MOST_ARCHIVE = 256 << 20  # Bytes; those of a sound one, unpacked, are 186 MB.
_BLOCK = 512
_NAMES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")

Batch = tuple[np.ndarray, np.ndarray]
Files = dict[str, bytes]


def _read_records(content: bytes, name: str) -> Batch:
    """Pixels (images, 3072) and labels of one file of the binary version: a byte for the label, then the pixels."""
    if not content or len(content) % _RECORD:
        raise ImageFileError(
            f"{name} has {len(content)} bytes, but each image of CIFAR-10's binary version has {_RECORD}; {CUT_SHORT}"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    if records[:, 0].max() > 9:
        raise ImageFileError(
            f"{name} has the label {records[:, 0].max()}, but those of CIFAR-10 are 0 to 9; {CUT_SHORT}"
        )
    return records[:, 1:], records[:, 0]


@dataclass(frozen=True)
class _Version:
    """One of the two published forms: the names of its folder and files, their checksums, and how a file is read."""

    folder: str
    suffix: str
    archive_md5: str
    algorithm: str
    sums: tuple[str, ...]
    read: Callable[[bytes, str], Batch]

    @property
    def names(self) -> list[str]:
        return [f"{name}{self.suffix}" for name in _NAMES]


_PYTHON = _Version(
    "cifar-10-batches-py",
    "",
    "c58f30108f718f92721af3b95e74349a",
    "md5",
    (
        "c99cafc152244af753f735de768cd75f",
        "d4bba439e000b95fd0a9bffe97cbabec",
        "54ebc095f3ab1f0389bbae665268c751",
        "634d18415352ddfa80567beed471001a",
        "482c414d41f54cd18b22e5b47cb7c3cb",
        "40351d587109b95175f43aff81a1287e",
    ),
    read_pickle,
)
_BINARY = _Version(
    "cifar-10-batches-bin",
    ".bin",
    "c32a1d4ab5d03f1284b67883e8d87530",
    "sha1",
    (
        "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
        "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
        "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
        "aab85764eb3584312d3c7f65fd2fd016e36a258e",
        "26e2849e66a845b7f1e4614ae70f4889ae604628",
        "67eb016db431130d61cd03c7ad570b013799c88c",
    ),
    _read_records,
)
_VERSIONS = (_PYTHON, _BINARY)


def load_cifar10(data: str = "", *, verify: bool = True) -> ImageSplits:
    """Loads CIFAR-10; the last tenth of the training images is for evaluations during training.

    **Arguments**

    - `data`: an archive, its folder, or a folder with either; by default the variable LAPWING_DATA.
    - `verify`: whether the files must have the published checksums.

    >>> import tempfile
    >>> from pathlib import Path
    >>> folder, image = Path(tempfile.mkdtemp()), bytes([3]) + bytes(3 * 32 * 32)   # label 3, all pixels black
    >>> for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
    ...     _ = (folder / f"{name}.bin").write_bytes(2 * image)
    >>> splits = load_cifar10(str(folder), verify=False)
    >>> splits.train.bytes.shape, splits.test.labels.tolist()
    ((9, 32, 32, 3), [3, 3])
    """
    path = path_of(data, _WHAT)
    try:
        version, files = _from_folder(path, verify) if path.is_dir() else _from_archive(path, verify)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ImageFileError(f"{path.name} cannot be uncompressed ({error}); {CUT_SHORT}") from None
    except OSError as error:
        raise ImageFileError(f"cannot read {path.name}: {error.strerror or error}") from None
    except UnreadableError as error:
        raise ImageFileError(f"cannot read {path.name}: {error}") from None
    *train, test = [_checked(version.read(files[name], name), name) for name in version.names]
    pixels, labels = (np.concatenate(parts) for parts in zip(*train, strict=True))
    cut = len(labels) - max(1, len(labels) // 10)
    parts = (pixels[:cut], labels[:cut]), (pixels[cut:], labels[cut:]), test
    return ImageSplits(*(_images(*part) for part in parts))


def _checked(batch: Batch, name: str) -> Batch:
    if not 1 <= len(batch[1]) <= _MOST_IMAGES:
        raise ImageFileError(
            f"{name} has {len(batch[1])} images, but a file of CIFAR-10 has {_MOST_IMAGES}; {CUT_SHORT}"
        )
    return batch


def _images(pixels: np.ndarray, labels: np.ndarray) -> LabelledImages:
    by_channel = pixels.reshape(-1, *_SHAPE)
    return LabelledImages(
        np.ascontiguousarray(by_channel.transpose(0, 2, 3, 1)), labels.astype(np.int32), 255
    )


def _from_folder(folder: Path, verify: bool) -> tuple[_Version, Files]:
    for version in _VERSIONS:
        for place in (folder, folder / version.folder):
            if all((place / name).is_file() for name in version.names):
                files = {name: read_regular(place / name, _MOST_FILE) for name in version.names}
                if verify:
                    _verify_files(version, files)
                return version, files
        if (archive := folder / f"{_archive_name(version)}").is_file():
            return _from_archive(archive, verify)
    raise ImageFileError(
        f"expected {_WHAT}, found neither in {str(folder)!r}; the six files are {', '.join(_PYTHON.names)}, each with "
        "the ending .bin in the binary version"
    )


def _archive_name(version: _Version) -> str:
    return f"cifar-10-{'python' if version is _PYTHON else 'binary'}.tar.gz"


def _verify_files(version: _Version, files: Files) -> None:
    for (name, content), expected in zip(files.items(), version.sums, strict=True):
        found = hashlib.new(version.algorithm, content, usedforsecurity=False).hexdigest()
        if found != expected:
            raise _other_sum(name, version.algorithm.upper(), found, expected)


def _other_sum(name: str, kind: str, found: str, expected: str) -> ImageFileError:
    return ImageFileError(
        f"{name} has the {kind} sum {found} instead of {expected}: it is damaged or not CIFAR-10; get another "
        f"copy, {WAIVE}"
    )


def _from_archive(path: Path, verify: bool) -> tuple[_Version, Files]:
    with open_regular(path) as packed:
        if verify:
            found = _md5(packed)
            if found not in [version.archive_md5 for version in _VERSIONS]:
                raise _other_sum(
                    path.name, "MD5", found, " or ".join(version.archive_md5 for version in _VERSIONS)
                )
            packed.seek(0)
        with gzip.open(packed) as unpacked:
            files = dict(_members(unpacked, path.name))
    for version in _VERSIONS:
        wanted = {name: files.get(f"{version.folder}/{name}") for name in version.names}
        if all(content is not None for content in wanted.values()):
            return version, {name: content for name, content in wanted.items() if content is not None}
    raise ImageFileError(
        f"{path.name} lacks some of the six files of CIFAR-10, {_PYTHON.folder}/{_PYTHON.names[0]} and the others; "
        "get another copy"
    )


def _md5(file: BinaryIO) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    while part := file.read(1 << 20):
        digest.update(part)
    return digest.hexdigest()


def _members(unpacked: gzip.GzipFile, archive: str) -> Iterator[tuple[str, bytes]]:
    """The files of CIFAR-10 in a tar archive, with their names; all others are skipped.

    Not by `tarfile`, which follows whatever sizes and links an archive states, in some versions without end: the two
    published archives hold nothing but plain files with short names.
    """
    known = {f"{version.folder}/{name}" for version in _VERSIONS for name in version.names}
    left, seen = _MOST_ARCHIVE, set()
    while (header := unpacked.read(_BLOCK)).strip(b"\0"):
        name = header[:100].rstrip(b"\0").decode("utf-8", "replace").removeprefix("./")
        size = _size(header, archive)
        padded = -(-size // _BLOCK) * _BLOCK
        left -= padded + _BLOCK
        if left < 0:
            raise ImageFileError(
                f"{archive} unpacks to more than {_MOST_ARCHIVE} bytes, which CIFAR-10 does not; get another copy"
            )
        if name not in known:
            _skip(unpacked, padded)
            continue
        if size > _MOST_FILE or name in seen:
            why = "twice" if name in seen else f"with {size} bytes, more than CIFAR-10's"
            raise ImageFileError(f"{archive} holds {name} {why}; get another copy")
        seen.add(name)
        content = unpacked.read(padded)
        if len(content) < padded:
            raise ImageFileError(f"{archive} ends within {name}; {CUT_SHORT}")
        yield name, content[:size]


def _size(header: bytes, archive: str) -> int:
    digits = header[124:136].strip(b"\0 ")
    if len(header) < _BLOCK or not digits or digits.strip(b"01234567"):
        raise ImageFileError(f"{archive} is not a tar archive; {CUT_SHORT}")
    return int(digits, 8)


def _skip(unpacked: gzip.GzipFile, count: int) -> None:
    while count > 0 and (read := len(unpacked.read(min(count, 1 << 20)))):
        count -= read
