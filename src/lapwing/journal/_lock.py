"""One writer per folder.

The lock is a `flock` on the file `lock`. Taking it is atomic, and the kernel releases it when the process dies, so
there are no stale locks on one machine and no pid has to be trusted. The content of the file names the owner; it is
emptied when a writer releases the lock. The file itself is never deleted: a process that deletes it cannot know who is
about to lock it. A writer checks now and then that its lock is still the file there (`check`), and stops if it is not:
somebody may have deleted it, and then another process could write too.

A lock that names another host and is free is taken over at once on a file system of one machine: the folder was moved,
or a container got another name, and no process of this machine writes it. File systems that machines share may keep
locks of other machines to themselves, or have none at all. There a writer touches the file every `BEAT_S` seconds, and
a lock is taken over when it was not touched for `SILENT_S` seconds, by the clock of the file system.
"""

import errno
import fcntl
import json
import os
import socket
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from lapwing.core import UnreadableError, parse_json, read_regular

from ._errors import JournalError, reading
from ._mount import is_on_one_machine

BEAT_S = 10.0
SILENT_S = 60.0
# A reader that tests a lock holds it for a moment, which a writer has to wait for.
_TIMEOUT_S = 0.25
_LOOK_EVERY_S = 0.25
_CHECK_EVERY_S = 0.02
_LONGEST_CONTENT = 4096
NO_FLOCK = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)


class LockedError(JournalError):
    """Another process has the lock; `owner` is the process, if the file names one."""

    def __init__(self, sentence: str, owner: "Owner | None"):
        super().__init__(sentence)
        self.owner = owner


class LostLockError(JournalError):
    """The file that this process had locked is not there any more, or another process has taken it over."""


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock, or held it when it died."""

    pid: int
    host: str

    @property
    def is_elsewhere(self) -> bool:
        return self.host != socket.gethostname()

    @property
    def is_gone(self) -> bool:
        """Whether it is a process of this host that has ended."""
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return not self.is_elsewhere
        except PermissionError:
            pass
        return False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Lock:
    """The right to write a folder, from its creation to `release` or the end of the process.

    **Raises** `LockedError` if another process has it. On a shared file system this can take `SILENT_S` seconds.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> lock = Lock(folder)
    >>> is_held(folder)
    True
    >>> lock.release()
    >>> is_held(folder)
    False
    """

    def __init__(self, folder: Path):
        self._me = json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode()
        self._check_after = 0.0
        self._file = _open_locked(folder)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, self._me, 0)
        self._released = threading.Event()
        self._beating: threading.Thread | None = None
        if not is_on_one_machine(folder):
            self._beating = threading.Thread(target=_beat, args=(self._file, self._released), daemon=True)
            self._beating.start()

    def check(self, folder: Path) -> None:
        """Raises `LostLockError` if this lock is not the file in `folder` any more. 10 µs, at most every 20 ms."""
        now = time.monotonic()
        if now < self._check_after:
            return
        self._check_after = now + _CHECK_EVERY_S
        # Shared file systems may number the same file differently after a while; there its content tells.
        if not ((folder / "lock").exists() if self._beating else _is_at(self._file, folder / "lock")):
            what = "was deleted or replaced"
        elif not self._names_me():
            what = f"was taken over by {read_owner(folder) or 'another process'}"
        else:
            return
        raise LostLockError(
            f"the lock of {folder} {what} while this process was writing there, so another one may write there too; "
            "this one stops and writes nothing more; see what happened there before you resume"
        )

    def _names_me(self) -> bool:
        try:
            return os.pread(self._file, _LONGEST_CONTENT, 0) == self._me
        except OSError:  # NFS: a file that another host has deleted.
            return False

    def release(self) -> None:
        self._released.set()
        if self._beating:
            self._beating.join()
        if self._names_me():
            os.ftruncate(self._file, 0)
        os.close(self._file)


def is_held(folder: Path) -> bool:
    """Whether a live process writes the folder (without shared locks: a process of this host)."""
    path = folder / "lock"
    with reading(path):
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        try:
            locked = _try_lock(file, fcntl.LOCK_SH)
        finally:
            os.close(file)
    if locked is None:
        owner = read_owner(folder)
        return owner is not None and not owner.is_elsewhere and not owner.is_gone
    return not locked


def read_owner(folder: Path) -> Owner | None:
    """The process that took the lock and has not released it, dead or alive."""
    try:
        match parse_json(read_regular(folder / "lock", _LONGEST_CONTENT, within=folder)):
            case {"pid": int(pid), "host": str(host)}:
                return Owner(pid, host)
    except (OSError, UnreadableError):
        pass
    return None


def _open_locked(folder: Path) -> int:
    """The open and locked file `lock`."""
    path, deadline = folder / "lock", time.monotonic() + _TIMEOUT_S
    while True:
        # Not through a link: the file that it leads to would be overwritten.
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            locked = _try_lock(file, fcntl.LOCK_EX)
            if locked is False and time.monotonic() > deadline:
                raise _locked(folder)
            # Another process may have replaced the file between the two calls.
            if locked is not False and _is_at(file, path):
                _wait_for_silence(folder, file, has_flock=bool(locked))
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        time.sleep(0.01)


def _wait_for_silence(folder: Path, file: int, *, has_flock: bool) -> None:
    """Returns when the owner that the lock names cannot be alive; raises if it shows that it is."""
    owner = read_owner(folder)
    if owner is None or owner.is_gone or (has_flock and not owner.is_elsewhere) or is_on_one_machine(folder):
        return
    touched = os.fstat(file).st_mtime_ns
    silent_since = time.monotonic() - (_time_at(folder) - touched / 1e9)
    if time.monotonic() - silent_since < SILENT_S:
        print(f"lapwing: waiting to see whether {owner} still writes {folder.name}", file=sys.stderr)
    while time.monotonic() - silent_since < SILENT_S:
        time.sleep(_LOOK_EVERY_S)
        if os.fstat(file).st_mtime_ns != touched:
            raise _locked(folder)


def _locked(folder: Path) -> LockedError:
    owner = read_owner(folder)
    who = owner or "another process"
    return LockedError(
        f"the run {folder.name} is being written by {who}; stop it first, or start a new run", owner
    )


def _time_at(folder: Path) -> float:
    """The time of the clock that stamps the files of a folder: hosts need not agree about it."""
    file, path = tempfile.mkstemp(prefix=".lock-", dir=folder)
    try:
        return os.fstat(file).st_mtime
    finally:
        os.close(file)
        os.unlink(path)


def _beat(file: int, released: threading.Event) -> None:
    while not released.wait(BEAT_S):
        try:
            os.utime(file)
        except OSError:  # The writer itself will notice.
            return


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except OSError:
        return False


def _try_lock(file: int, kind: int) -> bool | None:
    """Whether the file could be locked; None if its file system has no such locks."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        if error.errno in NO_FLOCK:
            return None
        raise
    return True
