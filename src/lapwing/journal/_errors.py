"""The error of this layer, and the context managers that turn an operating system's error into a sentence."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from lapwing.core import LapwingError, UnreadableError

_ADVICE = {
    errno.ENOSPC: "free some space there and resume the run",
    errno.EDQUOT: "free some space there and resume the run",
    errno.EACCES: "make it writable, or choose another runs folder",
    errno.EPERM: "make it writable, or choose another runs folder",
    errno.EROFS: "make it writable, or choose another runs folder",
}


class JournalError(LapwingError):
    """What went wrong with a run folder, in one sentence that a person can act on."""


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns an error while a file is read into one sentence that names the file."""
    try:
        yield
    except OSError as error:
        raise JournalError(f"cannot read {path}: {error.strerror or type(error).__name__}") from error
    except UnreadableError as error:
        raise JournalError(f"cannot read {path}: {error}") from error


@contextlib.contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turns a full disk, a read-only folder and the like into one sentence that names the folder."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        advice = _ADVICE.get(error.errno or 0, "choose another runs folder")
        raise JournalError(f"cannot write to {folder}: {reason}; {advice}") from error
