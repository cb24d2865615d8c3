"""The inbox of a run: a folder in which each pending command is one small JSON file.

A command is written to a hidden file and renamed, so a reader sees all of it or nothing. Commands are read in the order
of their file names, which is the order of posting: a name is the time in nanoseconds, or just after the newest pending
name if the clock went back.

Polling must be cheap, since the run polls at every step. Listing the folder takes about 5 µs, its modification time
about 2 µs. But modification times move in ticks of some milliseconds, so a command that arrives in the same tick as
another would not show. Hence the folder is listed until its last change is older than a tick, and once a second in any
case (a network file system may report its times late).

The folder itself is opened without following a link, and files are read and removed through it, so that nothing outside
the run is ever read or deleted, whatever takes its place.
"""

import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lapwing.core import replace_file

from ._json import decode, encode

_MAX_BYTES = 1 << 16
_TICK_S = 0.1
_LIST_EVERY_S = 1.0


@dataclass(frozen=True)
class Command:
    """A command that was posted to a run: a name and its arguments, as in `set learning_rate=0.01`.

    >>> print(Command("7f", "set", {"learning_rate": 0.01}))
    set learning_rate=0.01
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.arguments.items())])


@dataclass(frozen=True)
class Malformed:
    """A file in the inbox that is not a command, or an inbox that is not a folder, and why."""

    file: str
    reason: str
    is_inbox: bool = False

    def __str__(self) -> str:
        return f"{self.file}/" if self.is_inbox else f"the file {self.file} in control/"


class Inbox:
    """Both ends of the folder: any process posts; the run that owns the folder polls and drops what it has answered."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._path = str(folder)
        self._changed = -1
        self._settles = 0.0
        self._list_after = 0.0
        self._taken: set[str] = set()
        self._is_folder = True

    def post(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Writes a command; returns its id, which the answer repeats."""
        with self._opened() as folder:
            stamps = [name.split("-")[0] for name in _names(folder)]
        newest = max((int(stamp) for stamp in stamps if re.fullmatch(r"[0-9]{20}", stamp)), default=0)
        name_id = f"{max(time.time_ns(), newest + 1):020d}-{secrets.token_hex(4)}"
        replace_file(self.folder / f"{name_id}.json", encode({"command": name, "arguments": arguments}))
        return name_id

    def poll(self) -> list[Command | Malformed]:
        """The commands that arrived since the last call, in the order of posting."""
        now = time.monotonic()
        try:
            status = os.lstat(self._path)
        except OSError:
            return []
        if not stat.S_ISDIR(status.st_mode):
            return self._refuse_itself()
        self._is_folder = True
        if status.st_mtime_ns != self._changed:
            self._changed, self._settles = status.st_mtime_ns, now + _TICK_S
        elif now < self._list_after:
            return []
        self._list_after = now + _LIST_EVERY_S if now > self._settles else 0.0
        try:
            with self._opened() as folder:
                names = sorted(set(_names(folder)) - self._taken)
                self._taken.update(names)
                return [_read(name, folder) for name in names]
        except OSError:  # It was replaced in this moment, or cannot be read now; the next poll tries again.
            return []

    def _refuse_itself(self) -> list[Command | Malformed]:
        """Once: until there is a folder again, nothing can arrive."""
        was_folder, self._is_folder = self._is_folder, False
        reason = "it is not a folder any more; make it one, and the run takes commands again"
        return [Malformed(self.folder.name, reason, is_inbox=True)] if was_folder else []

    def drop(self, command: Command | Malformed) -> None:
        """Removes an answered command. A file that cannot be removed (a folder, say) is not read again."""
        name = f"{command.id}.json" if isinstance(command, Command) else command.file
        try:
            with self._opened() as folder:
                os.unlink(name, dir_fd=folder)
        except OSError:
            return
        self._taken.discard(name)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield folder
        finally:
            os.close(folder)


def _names(folder: int) -> list[str]:
    return [name for name in os.listdir(folder) if not name.startswith(".")]


def _read(name: str, folder: int) -> Command | Malformed:
    try:
        return Command(name.removesuffix(".json"), *_parse(name, _read_small_file(name, folder)))
    except OSError as error:
        return Malformed(name, f"it cannot be read: {error.strerror}")
    except ValueError as error:
        return Malformed(name, str(error))


def _read_small_file(name: str, folder: int) -> bytes:
    # Nothing in the folder may block the run: no waiting for a named pipe, no links out of the folder.
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a plain file")
        if status.st_size > _MAX_BYTES:
            raise ValueError(f"it has {status.st_size} bytes, and a command has at most {_MAX_BYTES}")
        return os.read(file, _MAX_BYTES)
    finally:
        os.close(file)


def _parse(file_name: str, content: bytes) -> tuple[str, dict[str, Any]]:
    if not file_name.endswith(".json"):
        raise ValueError("its name does not end in .json")
    command = decode(content)
    if not isinstance(command, dict) or not isinstance(command.get("command"), str) or not command["command"]:
        raise ValueError(
            'it names no command; write {"command": "set", "arguments": {"learning_rate": 0.01}}'
        )
    arguments = command.get("arguments", {})
    if not isinstance(arguments, dict):
        raise ValueError(
            f"its arguments are {arguments!r}; they should be a dict such as {{'learning_rate': 0.01}}"
        )
    return command["command"], arguments
