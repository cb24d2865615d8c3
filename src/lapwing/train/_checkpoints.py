"""The checkpoints of a run: written in the background, kept by a rule, restored only if whole.

`save` hands the state over and returns; a thread copies it to the host and writes it (Orbax in its plain,
synchronous form: its own asynchrony would stop the caller for the copy, and start more threads). A write that fails
is told by the next `failed` or `wait`; it never touches what is on disk already. What is still being written when
the process ends without `close` is lost, and nothing else.

Saves that come faster than the disk writes: at most one waits while one is written, and a newer one replaces it,
unless the newer one calls it the best, protects it, or its step is one to be kept; with two of those waiting,
`save` waits as well.

Kept are the newest few, those at every n-th step, what the newest few call their best, and what the caller
protects; the others are removed, after a new one is on disk.

A folder is only read until the first `save`, so that anyone may look at the checkpoints of a running run. Whoever
saves must be the run's only writer (its lock sees to that): it begins by removing the drafts of a killed one.
"""

import contextlib
import errno
import os
import re
import shutil
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lapwing.journal import from_json, to_json

from ._checkpoint_arrays import CheckpointError, on_device
from ._checkpoint_folder import (
    Checkpoint,
    DamagedCheckpointError,
    name_of,
    read,
    read_arrays,
    remove,
    serial_of,
    write,
)

__all__ = ["Checkpoint", "CheckpointError", "Checkpoints"]

_MOST_WAITING = 2
_ADVICE = {
    errno.ENOSPC: "; free some space there",
    errno.EDQUOT: "; free some space there",
    errno.EACCES: "; make it writable",
    errno.EPERM: "; make it writable",
    errno.EROFS: "; make it writable",
}


@dataclass(frozen=True)
class _Save:
    checkpoint: Checkpoint
    state: Any
    protected: frozenset[int]


class Checkpoints:
    """The checkpoints in a folder.

    >>> import tempfile, jax.numpy as jnp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoints = Checkpoints(Path(folder), keep=1)
    ...     for step in (10, 20):
    ...         serial = checkpoints.save({"w": jnp.full(2, float(step))}, step, {"loss": 1 / step})
    ...         checkpoints.wait()
    ...     state, found, damaged = checkpoints.newest_sound(like={"w": jnp.zeros(2)})
    >>> state, found.step, found.record, damaged
    ({'w': Array([20., 20.], dtype=float32)}, 20, {'loss': 0.05}, [])
    """

    def __init__(self, folder: Path, *, keep: int = 2, keep_every: int = 0):
        if keep < 1 or keep_every < 0:
            raise CheckpointError(
                f"keep should be at least 1 and keep_every at least 0, but they are {keep} and {keep_every}"
            )
        self._folder = Path(folder)
        self._keep = keep
        self._keep_every = keep_every
        self._damaged: set[int] = set()
        self._serials = 0  # How many were given so far; 0 until the first save has looked into the folder.
        self._changed = threading.Condition()
        self._waiting: list[_Save] = []
        # A pool of one, since it keeps its thread (starting one takes milliseconds while all cores are busy) and
        # ends it with the process, even if nobody calls `close`.
        self._thread = ThreadPoolExecutor(1, "lapwing checkpoints")
        self._writer: Future | None = None
        self._failure: CheckpointError | None = None

    def save(self, state: Any, step: int, record: Mapping[str, Any], *, protect: Collection[int] = ()) -> int:
        """Starts writing `state`, a tree of arrays that nobody changes or donates, and returns its serial.

        `record["best"]`, if given, is the serial of the best checkpoint so far.
        """
        record = from_json(to_json(record))  # As it is now: the caller may go on changing it.
        with self._changed:
            serial = self._next_serial()
            protected = frozenset(protect) | _best(record)
            self._waiting = [
                save
                for save in self._waiting
                if save.checkpoint.serial in protected or self._is_nth(save.checkpoint.step)
            ]
            self._changed.wait_for(lambda: len(self._waiting) < _MOST_WAITING)
            checkpoint = Checkpoint(step, serial, self._folder / name_of(serial, step), record)
            self._waiting.append(_Save(checkpoint, state, protected))
            if self._writer is None:
                self._writer = self._thread.submit(self._write_waiting)
        return serial

    def wait(self) -> None:
        """Returns when all is on disk; raises if a write failed that `failed` has not told."""
        with self._changed:
            self._changed.wait_for(lambda: self._writer is None)
            failure, self._failure = self._failure, None
        if failure:
            raise failure

    def failed(self) -> str | None:
        """The sentence about a write that failed since the last call, without waiting."""
        with self._changed:
            failure, self._failure = self._failure, None
        return str(failure) if failure else None

    def close(self) -> None:
        """Finishes what was begun, as `wait` does, and ends the thread."""
        self._thread.shutdown()
        self.wait()

    def all(self) -> list[Checkpoint]:
        """The checkpoints on disk, oldest first. Their arrays are not looked at."""
        found = []
        for folder in self._folders():
            with contextlib.suppress(CheckpointError):
                found.append(read(folder))
        return found

    def restore(self, like: Any, which: Checkpoint) -> Any:
        """The state in a checkpoint, as a tree like `like`, on the devices where its leaves are."""
        return on_device(read_arrays(which, like), like)

    def newest_sound(self, like: Any) -> tuple[Any, Checkpoint, list[str]] | None:
        """The newest checkpoint that is whole: its state as a tree like `like`, and the sentences about the
        damaged ones after it. None where there are no checkpoints; an error where all of them are damaged.
        """
        damaged: list[str] = []
        for folder in reversed(self._folders()):
            try:
                checkpoint = read(folder)
                return self.restore(like, checkpoint), checkpoint, damaged
            except DamagedCheckpointError as error:
                damaged.append(str(error))
                self._damaged.add(serial_of(folder) or 0)
        if damaged:
            raise CheckpointError(f"no checkpoint is whole in {self._folder}: {'; '.join(damaged)}")
        return None

    def arrays(self, which: Checkpoint) -> dict[str, np.ndarray]:
        """The arrays of a checkpoint by the names of their paths, for whoever has no tree like it."""
        return read_arrays(which)

    def _folders(self, *, drafts: bool = False) -> list[Path]:
        """By serial; whole ones, or the hidden drafts."""
        try:
            found = list(self._folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(f"cannot read {self._folder}: {error.strerror}") from error
        ours = [folder for folder in found if serial_of(folder) is not None]
        return sorted((f for f in ours if f.name.startswith(".") == drafts), key=lambda f: serial_of(f) or 0)

    def _next_serial(self) -> int:
        if not self._serials:
            taken = self._folders() + self._folders(drafts=True)
            self._serials = max((serial_of(folder) or 0 for folder in taken), default=0)
        self._serials += 1
        return self._serials

    def _is_nth(self, step: int) -> bool:
        return self._keep_every > 0 and step % self._keep_every == 0

    def _write_waiting(self) -> None:
        """What the thread does, until nothing is left to write."""
        while True:
            with self._changed:
                if not self._waiting:
                    self._writer = None
                    self._changed.notify_all()
                    return
                save = self._waiting.pop(0)
                self._changed.notify_all()
            try:
                self._remove_drafts()
                write(save.checkpoint, save.state)
                self._remove_superseded(save.protected)
            except Exception as error:  # Orbax raises anything; the caller of `wait` gets it as the cause.
                with self._changed:
                    self._failure = _failure(save.checkpoint, error)

    def _remove_drafts(self) -> None:
        for draft in self._folders(drafts=True):
            shutil.rmtree(draft, ignore_errors=True)

    def _remove_superseded(self, protected: Collection[int]) -> None:
        found = self.all()
        newest = [checkpoint for checkpoint in found if checkpoint.serial not in self._damaged][-self._keep :]
        kept = {checkpoint.serial for checkpoint in newest}.union(
            protected, *(_best(checkpoint.record) for checkpoint in newest)
        )
        for checkpoint in found:
            if checkpoint.serial not in kept and not self._is_nth(checkpoint.step):
                with contextlib.suppress(OSError):  # It is tried again after the next save.
                    remove(checkpoint.folder)


def _best(record: Mapping[str, Any]) -> frozenset[int]:
    best = record.get("best")
    return frozenset() if best is None else frozenset((best,))


def _failure(checkpoint: Checkpoint, error: Exception) -> CheckpointError:
    number, reason = _reason(error)
    failure = CheckpointError(
        f"cannot write the checkpoint of step {checkpoint.step} to {checkpoint.folder.parent}: "
        f"{reason}{_ADVICE.get(number, '')}; the checkpoints before it are as they were"
    )
    failure.__cause__ = error
    return failure


def _reason(error: Exception) -> tuple[int, str]:
    """The system's number and words for what happened; Orbax often has them only inside a long message."""
    if isinstance(error, OSError) and error.errno:
        return error.errno, error.strerror or ""
    message = str(error)
    if found := re.search(r"os_error_code='(\d+)'|OS error (\d+)", message):
        number = int(found[1] or found[2])
        return number, os.strerror(number)
    return 0, message.partition("\n")[0] or type(error).__name__
