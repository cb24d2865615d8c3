"""Files that only grow, one record per line.

Every write is one call to the kernel, without a buffer in this process, so nothing that was written is lost when the
process is killed in the next instruction. A write costs about 1 µs, and many lines are written with one call, so a
buffer (which would need a thread to flush it in time) would gain nothing.

A line can still be torn, by a full disk or a power failure. A failed write is undone at once; a torn line that is found
when a file is opened for writing is cut off. A complete line is never changed.

A file that somebody deletes or replaces would still take lines, which nobody could read: `LineWriter.lost` says so.
"""

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from ._border import LONGEST_LINE
from ._errors import JournalError
from ._lock import NO_FLOCK

_BLOCK = 1 << 16


class LineWriter:
    """A file of lines with one writer, opened once and kept open (metrics)."""

    def __init__(self, path: Path):
        self._path = str(path)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            self._size = _cut_torn_line(self._file, path)
        except BaseException:
            os.close(self._file)
            raise
        self._synced = 0

    def write(self, lines: Iterable[str]) -> None:
        data = "".join(line + "\n" for line in lines).encode()
        _write_whole(self._file, data, self._size)
        self._size += len(data)

    def lost(self, *, by_number: bool = True) -> str | None:
        """What somebody did to the file, in a word; None if it has all lines. Takes 3 µs. `by_number`: a file of the
        same name and another number is another one."""
        size = self._size  # Before the file is looked at: another thread may be writing.
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return "deleted"
        except OSError:  # Of a disk that does not answer now nothing is known.
            return None
        if by_number and not os.path.samestat(there, os.fstat(self._file)):
            return "replaced"
        return "cut" if there.st_size < size else None

    def sync(self) -> None:
        """Returns when all lines are on the disk, so that a power failure cannot take them."""
        size = self._size
        if size > self._synced:
            os.fsync(self._file)
            self._synced = size

    def close(self) -> None:
        os.close(self._file)
        self._file = -1  # Another file may get the number: a thread that still writes must not reach it.


def append_line(path: Path, line: str) -> None:
    """Appends one record to a file that several processes append to (events), under a short lock."""
    file = _open_locked(path)
    try:
        _write_whole(file, line.encode() + b"\n", _cut_torn_line(file, path))
    finally:
        os.close(file)


def sync_file(path: Path, synced: int) -> int:
    """Returns when a file is on the disk, of which the first `synced` bytes are already. **Returns** its size."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(file).st_size
        if size != synced:
            os.fsync(file)
        return size
    finally:
        os.close(file)


def append_text(path: Path, text: str) -> None:
    """Appends text for people. An unfinished last line is a person's own edit, so it is ended, not cut off."""
    file = _open_locked(path)
    try:
        size = os.fstat(file).st_size
        gap = b"\n" if size and os.pread(file, 1, size - 1) != b"\n" else b""
        _write_whole(file, gap + text.encode(errors="replace"), size)
    finally:
        os.close(file)


def _open_locked(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:  # Without locks, appending in one call is still the best there is.
        if error.errno not in NO_FLOCK:
            os.close(file)
            raise
    return file


def _write_whole(file: int, data: bytes, size: int) -> None:
    """Appends all of `data` to a file of `size` bytes, or nothing."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError:
        os.ftruncate(file, size)
        raise


def _cut_torn_line(file: int, path: Path) -> int:
    """Removes an unfinished last line; returns the size of the file."""
    size = end = os.fstat(file).st_size
    while end:
        if size - end > LONGEST_LINE:  # Not torn, but something else: a hole, say.
            raise JournalError(
                f"{path} is damaged: it ends in more than {LONGEST_LINE} bytes without a line; cut them off to resume"
            )
        start = max(0, end - _BLOCK)
        newline = os.pread(file, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(file, end)
    return end
