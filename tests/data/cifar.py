"""Files in the two formats of CIFAR-10, with images that are easy to tell apart: a class is a colour and a place."""

import gzip
import io
import struct
import tarfile
from pathlib import Path

import numpy as np

NAMES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


def images(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (count, 3072), channel by channel, and labels."""
    numbers = np.random.default_rng(seed)
    labels = numbers.integers(0, 10, count).astype(np.uint8)
    made = numbers.integers(0, 60, (count, 3, 32, 32)).astype(np.uint8)
    for image, label in zip(made, labels, strict=True):
        image[label % 3, :, 3 * label : 3 * label + 5] += 180
    return made.reshape(count, -1), labels


def as_records(pixels: np.ndarray, labels: np.ndarray) -> bytes:
    """A file of the binary version."""
    return np.concatenate([labels[:, None], pixels], axis=1).astype(np.uint8).tobytes()


def as_pickle(pixels: np.ndarray, labels: np.ndarray) -> bytes:
    """A file of the Python version, by the instructions that Python 2 wrote: strings of bytes, lists in parts."""
    made = bytearray(b"\x80\x02}q\x01(")
    made += _string(b"batch_label") + b"q\x02" + _string(b"training batch 1 of 5") + b"q\x03"
    made += _string(b"labels") + b"q\x04]q\x05"
    for first in range(0, len(labels), 1000):
        made += b"(" + b"".join(b"K" + bytes([label]) for label in labels[first : first + 1000]) + b"e"
    made += _string(b"data") + b"q\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08"
    made += b"K\x00\x85U\x01b\x87Rq\x09(K\x01" + b"J" + struct.pack("<i", len(labels)) + b"M\x00\x0c\x86"
    made += b"cnumpy\ndtype\nq\x0aU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    made += b"\x89T" + struct.pack("<i", pixels.size) + pixels.tobytes() + b"tb"
    made += _string(b"filenames") + b"q\x0c]q\x0d("
    made += b"".join(_string(b"bird_s_%06d.png" % number) for number in range(len(labels))) + b"eu."
    return bytes(made)


def _string(content: bytes) -> bytes:
    return b"U" + bytes([len(content)]) + content


WRITERS = {"py": ("cifar-10-batches-py", "", as_pickle), "bin": ("cifar-10-batches-bin", ".bin", as_records)}


def files(version: str, count: int) -> dict[str, bytes]:
    """The six files of a version, by their paths in the archive."""
    folder, suffix, write = WRITERS[version]
    made = {f"{folder}/{name}{suffix}": write(*images(count, seed)) for seed, name in enumerate(NAMES)}
    return {f"{folder}/batches.meta": b"names of the classes", **made}


def write_folder(place: Path, version: str, count: int) -> Path:
    for path, content in files(version, count).items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content)
    return place / WRITERS[version][0]


def archive_of(contents: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, content in contents.items():
            about = tarfile.TarInfo(path)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return gzip.compress(made.getvalue(), 1)
