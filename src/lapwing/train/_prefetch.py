"""A thread that reads the batches of a stream ahead, and moves them to the device.

It reads the batches of one call at a time. All batches of a call have the same shapes, so one that differs (the last of
an epoch) is a call of its own; but calls always end where they would end with equal shapes too, since what is decided
at every n-th step relies on that. With each call comes the position of the stream after it, for checkpoints: the
position of the thread would be too far ahead.
"""

import contextlib
import math
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.task import Batches, Stream


class _Item(NamedTuple):
    batches: Any  # Stacked along a leading axis, on the device; on a CPU they may be numpy's.
    steps: int
    position: Mapping[str, Any]  # After these batches.


_END = "end"
_ALIGNED = 64


class Prefetch:
    """Reads a stream ahead. `put` brings stacked batches to the device; on a CPU it may leave them as they are."""

    def __init__(self, stream: Stream, seed: int, steps_per_call: int, put: Callable[[Any], Any]):
        self._batches = Batches(stream, seed)
        self._size = steps_per_call
        self._put = put
        self._queue: queue.Queue[_Item | Exception | str] = queue.Queue(stream.prefetch)
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._head: _Item | None = None
        self._ended = False
        self._position: Mapping[str, Any] = self._batches.position()
        self._step = 0
        self._staging = _Staging(stream.prefetch)

    def restore(self, position: Mapping[str, Any], step: int) -> str | None:
        """Continues at a position after `step` steps, before anything was read. **Returns** what `Batches.restore`
        says."""
        said = self._batches.restore(position)
        self._position, self._step = position, step
        return said

    def position(self) -> Mapping[str, Any]:
        """Of the next batch that `take` returns."""
        return self._position

    def available(self, count: int) -> int:
        """How many batches of equal shapes can be taken now, at most `count`; waits for the first."""
        if self._head is None and not self._ended:
            self._head = self._receive()
        return 0 if self._head is None else min(count, self._head.steps)

    def take(self, count: int) -> Any:
        """The next `count` batches, stacked; they are available."""
        item = self._head
        assert item is not None
        assert count <= item.steps
        if count == item.steps:
            self._head, self._position = None, item.position
            return item.batches
        # A shorter last call, of a run that ends: the rest stays, in case it is resumed for longer.
        first, rest = (
            jax.tree.map(lambda leaf, part=part: leaf[part], item.batches)
            for part in (slice(count), slice(count, None))
        )
        self._head = item._replace(batches=rest, steps=item.steps - count)
        self._position = {**self._position, "since": self._position.get("since", 0) + count}
        return first

    def close(self) -> None:
        self._closed.set()
        while True:  # The thread may be waiting for room.
            try:
                self._queue.get_nowait()
            except queue.Empty:
                break
        if self._thread is not None:
            self._thread.join(timeout=1.0)  # A source that blocks for ever does not keep the run from ending.

    def _receive(self) -> _Item | None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._read, name="lapwing data", daemon=True)
            self._thread.start()
        received = self._queue.get()
        if isinstance(received, Exception):
            raise received
        if isinstance(received, str):
            self._ended = True
            return None
        return received

    def _read(self) -> None:
        """What the thread does."""
        try:
            for item in self._items():
                self._send(item)
                if self._closed.is_set():
                    return
            self._send(_END)
        except Exception as error:  # Raised in the loop, where it ends the run with its sentence.
            self._send(error)

    def _send(self, item: _Item | Exception | str) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(item, timeout=0.2)
                return

    def _items(self) -> Iterator[_Item]:
        """The batches of one call after the other, cut where the shapes change."""
        room, staging, position = (
            self._size - self._step % self._size,
            self._staging,
            self._batches.position(),
        )
        for batch in self._batches:
            if staging.count and not staging.fits(batch):
                yield self._item(position)
            if not staging.count:
                staging.start(batch, room)
            staging.add(batch)
            room, position = room - 1, self._batches.position()
            if not room:
                yield self._item(position)
                room = self._size
        if staging.count:
            yield self._item(position)

    def _item(self, position: Mapping[str, Any]) -> _Item:
        count = self._staging.count
        return _Item(self._staging.move(self._put), count, position)


class _Staging:
    """Memory of the host in which the batches of a call are stacked, each when it is read: a loader may use its own
    memory again for the next. For a GPU it is used again and again, since fresh pages for each call take longer than
    the copy; a CPU computes with the very memory that it is given."""

    def __init__(self, prefetch: int):
        self._used: deque[tuple[Any, list[Any], Any]] = deque()  # Shapes, memory, and what was moved from it.
        self._most = 0 if jax.default_backend() == "cpu" else prefetch + 2
        self.count = 0

    def start(self, batch: Any, most: int) -> None:
        """The next batches are at most `most`, and like this one."""
        self._key, memory = (most, _shapes(batch)), None
        if self._most and len(self._used) == self._most:
            key, memory, moved = self._used.popleft()
            jax.block_until_ready(moved)
            memory = memory if key == self._key else None
        self._memory = memory or [_memory(most, leaf) for leaf in jax.tree.leaves(batch)]

    def fits(self, batch: Any) -> bool:
        return _shapes(batch) == self._key[1]

    def add(self, batch: Any) -> None:
        for stack, leaf in zip(self._memory, jax.tree.leaves(batch), strict=True):
            stack[self.count] = leaf
        self.count += 1

    def move(self, put: Callable[[Any], Any]) -> Any:
        """The batches since `start`, stacked, on the device."""
        stacks = [
            stack[: self.count] if isinstance(stack, np.ndarray) else jnp.stack(stack[: self.count])
            for stack in self._memory
        ]
        batches = put(jax.tree.unflatten(self._key[1][0], stacks))
        if self._most:
            self._used.append((self._key, self._memory, batches))
        self.count = 0
        return batches


def _memory(most: int, leaf: Any) -> Any:
    """Room for `most` arrays: in jax's own dtypes, and aligned as XLA wants it, so that a CPU needs no copy of it.
    Arrays of jax never change, and stay where they are."""
    if isinstance(leaf, jax.Array):
        return [None] * most
    shape, dtype = (most, *leaf.shape), jax.dtypes.canonicalize_dtype(leaf.dtype)
    size = math.prod(shape) * dtype.itemsize
    whole = np.empty(size + _ALIGNED, np.uint8)
    start = -whole.ctypes.data % _ALIGNED
    return whole[start : start + size].view(dtype).reshape(shape)


def _shapes(batch: Any) -> Any:
    leaves, structure = jax.tree.flatten(batch)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]
