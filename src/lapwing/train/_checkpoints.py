"""The checkpoints of a run: written in the background, kept by a rule, restored only if complete.

`save` returns at once; a thread copies the state to the host and writes it. A write that fails is reported by the next
`failed` or `wait`, and leaves the checkpoints on disk as they are. Two may be waiting or in progress, a state and the
best one; with more, `save` waits.

The newest few are kept, those at every n-th step, and those that the newest few name as their best.

Nothing in the folder changes before the first `save`, so anybody can read the checkpoints of a running run. Only one
process may save, the one that has the run's lock: it removes the drafts of a killed one.
"""

import contextlib
import errno
import shutil
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from pathlib import Path
from typing import Any

import numpy as np

from lapwing.journal import (
    SUFFIX,
    Checkpoint,
    CheckpointError,
    DamagedCheckpointError,
    Which,
    checkpoint_files,
    choose_checkpoint,
    from_json,
    read_arrays,
    read_checkpoint,
    serial_of,
    to_json,
    write_checkpoint,
)

from . import _checkpoint_orbax
from ._checkpoint_arrays import differences, leaves_by_path, to_device, to_host
from ._version_0_1 import present_leaves

__all__ = ["Checkpoint", "CheckpointError", "Checkpoints"]

_ADVICE: dict[int | None, str] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "; free some space there"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "; make it writable"),
}


class Checkpoints:
    """The checkpoints in a folder; the newest `keep` stay (0: all), and those of every `keep_every` steps.

    The thread calls `sync` before it writes one, to bring to the disk what belongs to it.

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

    def __init__(
        self, folder: Path, *, keep: int = 2, keep_every: int = 0, sync: Callable[[], None] | None = None
    ):
        self._folder = Path(folder)
        self._makes_parents = not self._folder.parent.exists()
        self._keep = keep
        self._keep_every = keep_every
        self._sync = sync
        taken = checkpoint_files(self._folder) + checkpoint_files(self._folder, drafts=True)
        self._last_serial = max((serial_of(path) or 0 for path in taken), default=0)
        self._damaged: set[int] = set()
        self._thread = ThreadPoolExecutor(1, "lapwing checkpoints")
        self._writes: list[Future[None]] = []
        self._failures: deque[CheckpointError] = deque(maxlen=1)
        self._has_read_back = False

    def save(self, state: Any, step: int, record: Mapping[str, Any]) -> int:
        """Starts to write a state and returns its serial.

        **Arguments**
        - `state`: a tree of arrays that nobody changes or donates.
        - `record`: anything that JSON holds; `record["best"]` is the serial of the best checkpoint so far.
        """
        self._last_serial += 1
        path = self._folder / f"{self._last_serial:06d}-step-{step}{SUFFIX}"
        checkpoint = Checkpoint(step, path, from_json(to_json(record)))
        wait_for(self._writes[:-1])
        self._writes = [*self._writes[-1:], self._thread.submit(self._write, checkpoint, state)]
        return checkpoint.serial

    @property
    def is_busy(self) -> bool:
        """Whether something is still to be written."""
        return not all(write.done() for write in self._writes)

    def wait(self) -> None:
        """Returns when everything is on disk; raises if a write failed that `failed` has not reported."""
        self.wait_for_writes()
        if self._failures:
            raise self._failures.pop()

    def wait_for_writes(self) -> None:
        """Returns when nothing is to be written any more, whether it succeeded or not."""
        wait_for(self._writes)

    def failed(self) -> str | None:
        """The error of a write that failed since the last call, without waiting."""
        return str(self._failures.pop()) if self._failures else None

    def close(self) -> None:
        """Waits as `wait` does and ends the thread."""
        self._thread.shutdown()
        self.wait()

    def all(self) -> list[Checkpoint]:
        """The checkpoints on disk, oldest first; those whose header is damaged are left out."""
        found = []
        for path in checkpoint_files(self._folder):
            with contextlib.suppress(CheckpointError):
                found.append(_read(path))
        return found

    def find(self, serial: int) -> Checkpoint:
        """The checkpoint of a serial."""
        for path in checkpoint_files(self._folder):
            if serial_of(path) == serial:
                return _read(path)
        raise DamagedCheckpointError(self._folder / f"{serial:06d}", "it is missing")

    def choose(self, which: Which | int, run: str) -> Checkpoint:
        """The best checkpoint, the newest, or that of a step, of the run of this name. A damaged one is an error."""
        return choose_checkpoint(self._folder, which, run, _read)

    def restore(self, like: Any, which: Checkpoint) -> Any:
        """The state of a checkpoint as a tree like `like`, with the shardings of its leaves."""
        wanted = leaves_by_path(like)
        if found := differences(present_leaves(which.leaves, wanted), like):
            raise CheckpointError(
                f"the checkpoint {which.path} is of another state: {'; '.join(found)}; "
                "resume with the task, the optimizer and the version of Lapwing that wrote it"
            )
        return to_device(present_leaves(self.arrays(which), wanted), like)

    def newest_sound(self, like: Any) -> tuple[Any, Checkpoint, list[str]] | None:
        """Restores the newest checkpoint that is complete.

        **Returns** its state as a tree like `like`, the checkpoint, and the errors of the damaged ones after it;
        None if there are no checkpoints.
        """
        damaged: list[str] = []
        for path in reversed(checkpoint_files(self._folder)):
            try:
                checkpoint = _read(path)
                return self.restore(like, checkpoint), checkpoint, damaged
            except DamagedCheckpointError as error:
                damaged.append(str(error))
                self._damaged.add(serial_of(path) or 0)
        if damaged:
            raise CheckpointError(f"no checkpoint in {self._folder} can be used: {'; '.join(damaged)}")
        return None

    def arrays(self, which: Checkpoint) -> dict[str, np.ndarray]:
        """The arrays of a checkpoint by path, for a reader that has no tree like it."""
        reads = read_arrays if which.path.name.endswith(SUFFIX) else _checkpoint_orbax.read_arrays
        return reads(which)

    def _write(self, checkpoint: Checkpoint, state: Any) -> None:
        """What the thread does."""
        try:
            for draft in checkpoint_files(self._folder, drafts=True):
                _delete(draft)
            if self._makes_parents:  # Once: what is deleted later is not made again.
                self._folder.mkdir(parents=True, exist_ok=True)
                self._makes_parents = False
            if self._sync:
                self._sync()
            write_checkpoint(checkpoint, to_host(leaves_by_path(state)))
            if not self._has_read_back:  # A disk that does not keep what is written is noticed at once.
                self.arrays(self.find(checkpoint.serial))
                self._has_read_back = True
            self._remove_superseded()
        except Exception as error:
            self._failures.append(_failure(checkpoint, error))

    def _remove_superseded(self) -> None:
        found = self.all()
        newest = [checkpoint for checkpoint in found if checkpoint.serial not in self._damaged][-self._keep :]
        kept = {serial for each in newest for serial in (each.serial, each.record.get("best"))}
        for checkpoint in found:
            is_nth = self._keep_every > 0 and checkpoint.step % self._keep_every == 0
            if not is_nth and checkpoint.serial not in kept:
                path = checkpoint.path
                with contextlib.suppress(OSError):  # The next save tries again.
                    _delete(path.rename(path.with_name(f".{path.name}")))


def _read(path: Path) -> Checkpoint:
    return read_checkpoint(path) if path.name.endswith(SUFFIX) else _checkpoint_orbax.read(path)


def _delete(draft: Path) -> None:
    """Deletes a hidden file, or a hidden folder of Lapwing 0.1."""
    if draft.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
    else:
        draft.unlink(missing_ok=True)


def _failure(checkpoint: Checkpoint, error: Exception) -> CheckpointError:
    number, reason = (error.errno, error.strerror) if isinstance(error, OSError) else (None, str(error))
    failure = CheckpointError(
        f"cannot write the checkpoint of step {checkpoint.step} to {checkpoint.path.parent}: "
        f"{reason or type(error).__name__}{_ADVICE.get(number, '')}; earlier checkpoints are unchanged"
    )
    failure.__cause__ = error
    return failure
