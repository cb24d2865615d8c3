"""One writer per folder.

The lock is a `flock` on the file `lock`. Taking it is atomic, and the kernel releases it when the process dies, so
there are no stale locks on one machine and no pid has to be trusted. The content of the file names the owner, for the
error message; it is emptied when a writer releases the lock.

Between machines that share a folder, `flock` works on file systems that support it (NFS since version 4). On others a
lock of another host looks free although its owner may be alive. So a lock that names another host and was not released
is never taken over; the error says which file to delete if that host is known to be dead.
"""

import errno
import fcntl
import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from ._errors import JournalError, reading

# A reader that tests a lock holds it for a moment, which a writer has to wait for.
_TIMEOUT_S = 0.25


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock, or held it when it died."""

    pid: int
    host: str

    @property
    def is_elsewhere(self) -> bool:
        return self.host != socket.gethostname()

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Lock:
    """The right to write a folder, from its creation to `release` or the end of the process."""

    def __init__(self, folder: Path):
        path = folder / "lock"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._take(folder, path)
        except BaseException:
            os.close(self._file)
            raise
        me = json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode()
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, me, 0)

    def _take(self, folder: Path, path: Path) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while not _try_lock(self._file, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                who = read_owner(folder) or "another process"
                raise JournalError(
                    f"the run {folder.name} is being written by {who}; stop it first, or start a new run"
                )
            time.sleep(0.01)
        before = read_owner(folder)
        if before and before.is_elsewhere:
            raise JournalError(
                f"the run {folder.name} was being written by {before}, which cannot be checked from here; "
                f"if it has ended, delete {path} and try again"
            )

    def release(self) -> None:
        os.ftruncate(self._file, 0)
        os.close(self._file)


def is_held(folder: Path) -> bool:
    """Whether a live process writes the folder (without shared locks: a process of this host)."""
    path = folder / "lock"
    with reading(path):
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not _try_lock(file, fcntl.LOCK_SH)
        finally:
            os.close(file)


def read_owner(folder: Path) -> Owner | None:
    """The process that took the lock and has not released it, dead or alive."""
    try:
        content = json.loads((folder / "lock").read_bytes())
        return Owner(int(content["pid"]), str(content["host"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _try_lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True
