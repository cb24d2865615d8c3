"""Reading files that anybody may have written: what can block, has no end or nests without end is refused.

A folder of runs is often shared, copied and edited. A pipe under the name of a file would block its reader, `/dev/zero`
and a file of holes would fill its memory, a link would lead elsewhere, and deeply nested JSON ends in a RecursionError.
All layers read such files through `open_regular`, `read_regular` and `parse_json`. The rules are here, once.
"""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from ._errors import LapwingError

DEEPEST = 100
"""The largest number of levels of JSON."""
_LONGEST_INTEGER_BITS = 1000
"""Every integer has a float, so that no arithmetic on what was read overflows."""
_LARGEST_HOLES = 1 << 26
_FLAGS = (
    os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
)  # Opening a pipe does not wait for its writer.


class UnreadableError(LapwingError, ValueError):
    """Why a file, or its content, cannot be read."""


def open_regular(path: str | os.PathLike[str], within: Path | None = None) -> BinaryIO:
    """Opens a regular file for reading.

    **Arguments:** `within` is a folder out of which no link may lead.

    **Raises** `UnreadableError` for anything else than a regular file, for a link out of the folder and for a file with
    large holes; `OSError` as `open` does.

    >>> open_regular("/dev/zero")
    Traceback (most recent call last):
    lapwing.core._untrusted.UnreadableError: it is not a regular file
    """
    file = _open(path, within)
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            raise UnreadableError("it is not a regular file")
        if about.st_size > _LARGEST_HOLES:
            _check_holes(file, about.st_size)
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def read_regular(path: str | os.PathLike[str], most: int, within: Path | None = None) -> bytes:
    """The content of a regular file of at most `most` bytes."""
    with open_regular(path, within) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise UnreadableError(f"it has more than {most} bytes")
    return content


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text, of bounded depth.

    >>> parse_json('{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> parse_json("[" * 1000)
    Traceback (most recent call last):
    lapwing.core._untrusted.UnreadableError: it is nested more than 100 levels deep
    """
    try:
        return check_json(json.loads(text))
    except RecursionError:
        raise UnreadableError(f"it is nested more than {DEEPEST} levels deep") from None
    except UnicodeDecodeError:
        raise UnreadableError("it is not text in UTF-8") from None
    except json.JSONDecodeError as error:
        raise UnreadableError(f"it is not JSON: {error}") from None
    except UnreadableError:
        raise
    except ValueError as error:  # An integer of thousands of digits.
        raise UnreadableError(f"it is not JSON: {error}") from None


def check_json(value: Any) -> Any:
    """Returns a parsed JSON value as it is; **raises** `UnreadableError` if it is too deep, or an integer too large."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise UnreadableError(f"it is nested more than {DEEPEST} levels deep")
        inner: list[Any] = []
        for item in level:
            if type(item) is dict:
                inner += item.values()
            elif type(item) is list:
                inner += item
            elif type(item) is int and item.bit_length() > _LONGEST_INTEGER_BITS:
                raise UnreadableError(f"it has an integer of more than {_LONGEST_INTEGER_BITS} bits")
        level = inner
    return value


def _open(path: str | os.PathLike[str], within: Path | None) -> int:
    if within is None:
        return os.open(path, _FLAGS)
    if Path(path).parent == within:
        try:
            return os.open(path, _FLAGS | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
    # It is a link, or the folders on the way may be: look where it leads.
    real = os.path.realpath(path)
    if not Path(real).is_relative_to(os.path.realpath(within)):
        raise UnreadableError("it is a link out of its folder")
    return os.open(real, _FLAGS | os.O_NOFOLLOW)


def _check_holes(file: int, size: int) -> None:
    """A hole takes no space on the disk but all of its size in memory. Nothing that Lapwing writes has one."""
    if not hasattr(os, "SEEK_HOLE"):
        return
    at = holes = 0
    while at < size:
        hole = os.lseek(file, at, os.SEEK_HOLE)
        try:
            at = os.lseek(file, hole, os.SEEK_DATA)
        except OSError as error:  # No data follows.
            if error.errno != errno.ENXIO:
                raise
            at = size
        holes += at - hole
        if holes > _LARGEST_HOLES:
            raise UnreadableError(f"it has holes of more than {_LARGEST_HOLES} bytes")
    os.lseek(file, 0, os.SEEK_SET)
