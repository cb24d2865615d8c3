"""The memory between a loader and the device: whatever is used again, the batches are those that were read."""

import jax
import numpy as np
import pytest

from lapwing.task import Stream
from lapwing.train._prefetch import Prefetch, _Staging


def reusing_one_buffer(lengths):
    """A loader that overwrites its memory with the next batch."""
    buffer = np.empty((8, 2))
    for number, length in enumerate(lengths):
        buffer[:length] = number
        yield {"x": buffer[:length], "n": np.int64(number)}


LENGTHS = [4] * 9 + [3] + [4] * 5 + [2, 2]


def taken(reader: Prefetch) -> list[tuple[int, int]]:
    """The number and the length of each batch, after all of them were read."""
    items = []
    while count := reader.available(2):
        items.append(reader.take(count))
    reader.close()
    found = []
    for item in items:
        x, n = np.asarray(item["x"]), np.asarray(item["n"])
        assert (x.dtype, n.dtype) == (np.float32, np.int32)
        assert (x == n[:, None, None]).all()
        found += [(int(number), x.shape[1]) for number in n]
    return found


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("reuses", [False, True])
def test_a_loader_may_overwrite_its_batches(size: int, reuses: bool, monkeypatch):
    if reuses:  # As for a GPU, which has memory of its own.
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    copied = (lambda tree: jax.tree.map(lambda leaf: leaf.copy(), tree)) if reuses else (lambda tree: tree)
    stream = Stream(lambda: reusing_one_buffer(LENGTHS), epochs=1, prefetch=2)
    assert taken(Prefetch(stream, 0, size, copied)) == list(enumerate(LENGTHS))


def moved(staging: _Staging, batches, put):
    staging.start(batches[0], len(batches))
    for batch in batches:
        staging.add(batch)
    return staging.move(put)


def test_memory_for_a_gpu_is_used_again_after_it_was_moved(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    staging, seen = _Staging(prefetch=1), []
    for number in range(9):
        moved(staging, [np.full(3, number)], lambda memory: seen.append(memory) or memory.copy())
    assert len({memory.ctypes.data for memory in seen}) == 3


def test_memory_for_a_cpu_is_aligned_and_taken_as_it_is():
    given = moved(_Staging(prefetch=1), [np.ones(5), np.zeros(5)], lambda memory: memory)
    assert given.ctypes.data % 64 == 0
    array = jax.device_put(given)
    assert array.unsafe_buffer_pointer() == given.ctypes.data


def test_arrays_of_jax_and_of_numpy_in_one_batch():
    found = moved(
        _Staging(1), [(jax.numpy.ones(2), np.ones(2)), (jax.numpy.zeros(2), np.zeros(2))], lambda t: t
    )
    for stack in found:
        np.testing.assert_array_equal(stack, [[1, 1], [0, 0]])
