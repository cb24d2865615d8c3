"""CIFAR-10 in both versions and all places, against the standard reader of pickles; and hostile files."""

import gzip
import pickle
import struct
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest

from lapwing.data import ImageFileError, load_cifar10

from .cifar import archive_of, as_pickle, as_records, files, images, write_folder

PY = "cifar-10-batches-py"


@pytest.mark.parametrize("version", ["py", "bin"])
@pytest.mark.parametrize("place", ["folder", "above", "archive", "beside"])
def test_both_versions_are_read_from_archives_and_folders(version: str, place: str, tmp_path: Path):
    if place in ("folder", "above"):
        folder = write_folder(tmp_path, version, 20)
        path = folder if place == "folder" else tmp_path
    else:
        name = f"cifar-10-{'python' if version == 'py' else 'binary'}.tar.gz"
        (tmp_path / name).write_bytes(archive_of(files(version, 20)))
        path = tmp_path / name if place == "archive" else tmp_path
    splits = load_cifar10(str(path), verify=False)
    assert [len(part.labels) for part in splits] == [90, 10, 20]
    pixels, labels = images(20, seed=5)  # Those of the last file.
    np.testing.assert_array_equal(splits.test.labels, labels)
    for row, column, channel in ((0, 0, 0), (3, 30, 1), (31, 7, 2)):
        expected = pixels[:, channel * 1024 + row * 32 + column]
        np.testing.assert_array_equal(splits.test.bytes[:, row, column, channel], expected)
    first, last = images(20, seed=0)[1], images(20, seed=4)[1]
    np.testing.assert_array_equal(splits.train.labels[:20], first)
    np.testing.assert_array_equal(splits.validation.labels, last[10:])
    assert splits.train.shape == (32, 32, 3)


def test_the_stand_in_is_a_pickle_that_others_read_too():
    pixels, labels = images(1234)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy has moved the function that the files name.
        found = pickle.loads(as_pickle(pixels, labels), encoding="bytes")
    assert found[b"labels"] == labels.tolist()
    np.testing.assert_array_equal(found[b"data"], pixels)


def test_files_of_others_are_refused_unless_that_is_asked_for(tmp_path: Path):
    folder = write_folder(tmp_path, "py", 3)
    with pytest.raises(
        ImageFileError, match=r"data_batch_1 has the MD5 sum \w+ instead of c99cafc.*--no-verify"
    ):
        load_cifar10(str(folder))
    binary = write_folder(tmp_path, "bin", 3)
    with pytest.raises(ImageFileError, match=r"data_batch_1.bin has the SHA1 sum \w+ instead of aadd24a"):
        load_cifar10(str(binary))
    archive = tmp_path / "cifar-10-python.tar.gz"
    archive.write_bytes(archive_of(files("py", 3)))
    with pytest.raises(ImageFileError, match=r"MD5 sum \w+ instead of c58f30108f\w+ or c32a1d4ab5\w+:"):
        load_cifar10(str(archive))


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch):
    monkeypatch.delenv("LAPWING_DATA", raising=False)
    with pytest.raises(ImageFileError, match=r"expected the archive of CIFAR-10 .* --data PATH or LAPWING_D"):
        load_cifar10()
    with pytest.raises(ImageFileError, match=r"found neither in .*; the six files are data_batch_1, "):
        load_cifar10(str(tmp_path))
    some = files("bin", 2)
    some.pop("cifar-10-batches-bin/test_batch.bin")
    (tmp_path / "x.tar.gz").write_bytes(archive_of(some))
    with pytest.raises(ImageFileError, match=r"x.tar.gz lacks some of the six files"):
        load_cifar10(str(tmp_path / "x.tar.gz"), verify=False)


GOOD = as_pickle(*images(2))
ARRAY = GOOD.index(b"cnumpy.core")
HOSTILE = {
    "a call": (b"\x80\x02cos\nsystem\nU\x04true\x85R.", "it asks for 'os.system'"),
    "a call of numpy": (b"\x80\x02cnumpy\nload\nU\x04true\x85R.", "it asks for 'numpy.load'"),
    "a class": (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "it has the instruction SHORT_BINUNICODE"),
    "a reduction of an object": (b"\x80\x02}}R.", "truncated or no pickle"),
    "cut short": (GOOD[:-200], "truncated or no pickle"),
    "text": (b"hello, this is no pickle", "truncated or no pickle|it has the instruction"),
    "nothing": (b"", "truncated or no pickle"),
    "no dict": (b"\x80\x02].", "should hold a dict"),
    "no array": (b"\x80\x02}(U\x04dataK\x01U\x06labels]u.", "its 'data' should be an array"),
    "labels": (GOOD.replace(b"(K", b"(K\x63K", 1), "a list of numbers from 0 to 9|images and 3 labels"),
    "a memo of billions": (b"\x80\x02}r\xff\xff\xff\x7f.", "should hold a dict"),
    "a string of gigabytes": (b"\x80\x02T\xff\xff\xff\x7fabc", "truncated or no pickle"),
    "many instructions": (b"\x80\x02" + b"N" * 300_000 + b".", "more than 200000 instructions"),
    "an array of terabytes": (
        GOOD.replace(b"J" + struct.pack("<i", 2), b"J" + struct.pack("<i", 2**31 - 1), 1),
        "6144 bytes instead of 2147483647 × 3072",
    ),
    "another shape": (GOOD.replace(b"M\x00\x0c\x86", b"M\x00\x06\x86", 1), "rows of 3072 bytes"),
}


@pytest.mark.parametrize("which", HOSTILE)
def test_a_hostile_pickle_is_refused_in_one_sentence(which: str, tmp_path: Path):
    content, said = HOSTILE[which]
    folder = write_folder(tmp_path, "py", 2)
    (folder / "data_batch_1").write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ImageFileError, match=said) as refused:
            load_cifar10(str(folder), verify=False)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("data_batch_1 ")


def test_damaged_records_are_refused(tmp_path: Path):
    folder = write_folder(tmp_path, "bin", 2)
    sound = as_records(*images(2))
    for content, said in (
        (sound[:-1], "has 6145 bytes, but each image"),
        (b"", "has 0 bytes"),
        (bytes([77]) + sound[1:], "has the label 77"),
    ):
        (folder / "data_batch_3.bin").write_bytes(content)
        with pytest.raises(ImageFileError, match=f"data_batch_3.bin {said}"):
            load_cifar10(str(folder), verify=False)


def test_an_archive_that_unpacks_to_gigabytes_is_refused_and_takes_no_memory(tmp_path: Path):
    path = tmp_path / "bomb.tar.gz"
    header = bytearray(archive_header(f"{PY}/readme.html", 1 << 32))
    path.write_bytes(gzip.compress(bytes(header)) + gzip.compress(bytes(1 << 24)) * 20)
    huge = tmp_path / "huge.tar.gz"
    huge.write_bytes(gzip.compress(archive_header(f"{PY}/data_batch_1", 1 << 27) + bytes(1 << 24)))
    tracemalloc.start()
    try:
        with pytest.raises(ImageFileError, match="unpacks to more than 268435456 bytes"):
            load_cifar10(str(path), verify=False)
        with pytest.raises(ImageFileError, match="with 134217728 bytes, more than CIFAR-10's"):
            load_cifar10(str(huge), verify=False)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()


def archive_header(name: str, size: int) -> bytes:
    header = bytearray(512)
    header[: len(name)] = name.encode()
    header[124:136] = b"%011o\0" % size
    return bytes(header)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no gzip", "cannot be uncompressed"),
        (gzip.compress(b"no tar" * 200), "is not a tar archive"),
        (archive_of(files("py", 2))[:5000], "cannot be uncompressed"),
        (gzip.compress(archive_header(f"{PY}/data_batch_1", 5000) + bytes(100)), "ends within"),
    ],
    ids=["no gzip", "no tar", "cut short", "ends within a file"],
)
def test_a_damaged_archive_is_refused(content: bytes, said: str, tmp_path: Path):
    path = tmp_path / "x.tar.gz"
    path.write_bytes(content)
    with pytest.raises(ImageFileError, match=said):
        load_cifar10(str(path), verify=False)
