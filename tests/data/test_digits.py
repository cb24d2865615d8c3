import functools
import gzip
import struct
import tracemalloc
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.data import ImageFileError, epoch_batch, epoch_order, load_digits
from lapwing.data._digits import _MNIST

LENGTHS = {file.name: 4 * (1 + len(file.sizes)) + int(np.prod(file.sizes)) for file in _MNIST}


def header_of(file) -> bytes:
    return struct.pack(f">{1 + len(file.sizes)}I", file.magic, *file.sizes)


def zeros(file) -> bytes:
    """A file of the right form with nothing in it."""
    return header_of(file) + bytes(int(np.prod(file.sizes)))


def test_the_small_digits_are_images_of_all_digits_and_the_splits_share_none():
    splits = load_digits()
    assert [len(part.labels) for part in splits] == [1200, 200, 397]
    for part in splits:
        pixels = part.pixels()
        assert pixels.dtype == np.float32
        assert (float(pixels.min()), float(pixels.max())) == (0, 1)
        assert set(part.labels) == set(range(10))
    np.testing.assert_array_equal(
        splits.test.pixels(jnp.array([3, 1])), splits.test.pixels()[np.array([3, 1])]
    )
    train, _, test = ({image.tobytes() for image in part.bytes} for part in splits)
    assert not train & test


def test_without_a_folder_mnist_says_where_it_looks(monkeypatch):
    monkeypatch.delenv("LAPWING_DATA", raising=False)
    with pytest.raises(ImageFileError, match="give it with --data PATH or LAPWING_DATA"):
        load_digits("mnist")
    with pytest.raises(ImageFileError, match="there is none at 'nowhere'"):
        load_digits("mnist", "nowhere")
    monkeypatch.setenv("LAPWING_DATA", "elsewhere")
    with pytest.raises(ImageFileError, match="there is none at 'elsewhere'"):
        load_digits("mnist")


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(
        ImageFileError, match=r"expected train-images-idx3-ubyte or train-images-idx3-ubyte\.gz"
    ):
        load_digits("mnist", str(tmp_path))


@functools.cache
def changed() -> dict[str, tuple[bytes, str]]:
    content = zeros(_MNIST[0])
    packed = gzip.compress(content, 1)
    return {
        "": (content[:1000], "should have 47040016 bytes, but has 1000; it is truncated"),
        "no header": (content[:7], "7 bytes, fewer than its header"),
        "labels": (b"\0\0\x08\x01" + content[4:], r"has the magic number 2049, but .* have 2051"),
        "sizes": (content[:4] + struct.pack(">I", 10) + content[8:], "declares 10×28×28"),
        "sum": (content, r"has the MD5 sum .* instead of 6bbc9ace898e44ae57da46a324031adb"),
        ".gz": (packed[: len(packed) // 2], "cannot be uncompressed"),
        ".gz no gz": (b"hello", "cannot be uncompressed"),
    }


@pytest.mark.parametrize("which", ["", "no header", "labels", "sizes", "sum", ".gz", ".gz no gz"])
def test_a_wrong_file_is_refused(which: str, tmp_path: Path):
    wrong, said = changed()[which]
    suffix = ".gz" if which.startswith(".gz") else ""
    (tmp_path / f"{_MNIST[0].name}{suffix}").write_bytes(wrong)
    with pytest.raises(ImageFileError, match=said):
        load_digits("mnist", str(tmp_path))


def test_epochs_are_permutations_and_each_is_another_one():
    order = epoch_order(jax.random.key(0), 10)
    draw, epochs = jax.jit(epoch_batch, static_argnums=3), []
    for epoch in range(3):
        seen = []
        for step in range(5 * epoch, 5 * epoch + 5):
            key = jax.random.fold_in(jax.random.key(1), step)
            examples, order = draw(key, jnp.int32(step), order, 2)
            seen += examples.tolist()
        assert sorted(seen) == list(range(10))
        epochs.append(tuple(seen))
    assert len(set(epochs)) == 3


def test_a_batch_larger_than_all_is_refused():
    with pytest.raises(ImageFileError, match="a batch of 1 to 3 examples, found 4"):
        epoch_batch(jax.random.key(0), jnp.int32(0), jnp.arange(3), 4)


def test_a_small_file_that_unpacks_to_gigabytes_takes_no_memory(tmp_path: Path):
    zeros_of_a_gigabyte = gzip.compress(bytes(1 << 24)) * 64  # Members of a file follow each other.
    (tmp_path / f"{_MNIST[0].name}.gz").write_bytes(zeros_of_a_gigabyte)
    tracemalloc.start()
    try:
        with pytest.raises(ImageFileError, match="magic number 0"):
            load_digits("mnist", str(tmp_path))
        assert tracemalloc.get_traced_memory()[1] < 200e6
    finally:
        tracemalloc.stop()
