"""The journal of a session: a file of JSON lines, the machine first, then each edit with its cycle.

    {"journal": "lapwing dmm live 1", "machine": {…}, "options": {"text": "aab"}}
    {"cycle": 40, "edit": "weight", "to": "norm.dict", "from": "accum.dict", "weight": 0.5, "state": "5f1c…"}
    {"cycle": 65, "edit": "end", "state": "0a22…"}

`state` is a hash of all outputs at that cycle, so a replay knows that it has the same values to the last bit. Every
line is written whole and is on the disk before its edit is made: a process that is killed loses no edit.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lapwing import trees
from lapwing.core import LapwingError, UnreadableError, parse_json, read_regular
from lapwing.trees import Tree

FORM = "lapwing dmm live 1"
_MOST_BYTES = 1 << 28


class LiveError(LapwingError, ValueError):
    """An edit, a cycle or a journal that is not valid, in one sentence; nothing was changed."""


def digest(outputs: Tree) -> str:
    """A hash of all outputs: the same only for the same bits (and the same keys).

    >>> digest({"a": {"x": {"b": 0.1 + 0.2}}}) == digest({"a": {"x": {"b": 0.3}}})
    False
    """
    text = json.dumps(trees.map_leaves(float, outputs), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Journal:
    """A journal that is being written."""

    def __init__(self, path: Path, descriptor: int):
        self.path = path
        self._file: int | None = descriptor
        self._edits = 0

    @classmethod
    def create(cls, file: str | Path, machine: str, options: Mapping[str, Any]) -> "Journal":
        """A new journal, with the machine (as JSON text) as its first line."""
        path = Path(file)
        try:
            first = json.dumps({"journal": FORM, "machine": json.loads(machine), "options": dict(options)})
        except (TypeError, ValueError) as error:
            raise LiveError(
                f"a journal has options of JSON alone, but {error}; leave the journal out"
            ) from None
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            raise LiveError(
                f"there is already a file {str(path)!r}; name another one for this journal"
            ) from None
        except OSError as error:
            raise LiveError(f"cannot write the journal {str(path)!r}: {error.strerror}") from None
        journal = cls(path, descriptor)
        journal._line(first)
        return journal

    def write(self, cycle: int, edit: Mapping[str, Any], state: str) -> None:
        """Adds an edit that is about to be made."""
        self._line(json.dumps({"cycle": cycle, **edit, "state": state}))
        self._edits += 1

    def end(self, cycle: int, state: str) -> None:
        """Writes how far the run has come, and closes the file; removes it if it has no edit."""
        if self._file is None:
            return
        if self._edits:
            self._line(json.dumps({"cycle": cycle, "edit": "end", "state": state}))
        else:
            self.path.unlink(missing_ok=True)
        os.close(self._file)
        self._file = None

    @property
    def edits(self) -> int:
        """How many edits it has."""
        return self._edits

    def _line(self, text: str) -> None:
        if self._file is None:
            raise LiveError("the session has ended; its journal is closed")
        line = f"{text}\n".encode()
        before = os.fstat(self._file).st_size
        try:
            if os.write(self._file, line) < len(line):
                raise OSError(None, "the disk is full")
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, before)  # Half a line would hide the next one.
            os.lseek(self._file, before, os.SEEK_SET)
            raise LiveError(
                f"cannot write the journal {str(self.path)!r}: {error.strerror}; the edit was not made"
            ) from None


class Entry(NamedTuple):
    """A line of a journal after the first."""

    cycle: int
    edit: dict[str, Any]
    state: str | None


class Written(NamedTuple):
    """A journal that was read."""

    machine: str
    options: dict[str, Any]
    entries: list[Entry]


def read_journal(file: str | Path) -> Written:
    """Reads a journal. A last line that is not complete is left out: its edit was not made."""
    path = Path(file)
    try:
        content = read_regular(path, _MOST_BYTES)
    except (OSError, UnreadableError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise LiveError(f"cannot read the journal {str(path)!r}: {why}") from None
    first, *rest = content.split(b"\n")[:-1] or [content]
    try:
        top = parse_json(first)
    except UnreadableError:
        top = None
    if not isinstance(top, dict) or top.get("journal") != FORM or not isinstance(top.get("machine"), dict):
        raise LiveError(
            f"{str(path)!r} is not the journal of a session: its first line lacks {FORM!r} and a machine; "
            "name a file that `lapwing dmm live` wrote"
        )
    options = top.get("options", {})
    if not isinstance(options, dict):
        raise LiveError(f"the journal {str(path)!r} is damaged: its options are {options!r:.80}")
    known = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    entries = [_entry(_parsed(line, path, number), path, number) for number, line in enumerate(rest, start=2)]
    return Written(json.dumps(top["machine"]), known, entries)


def _parsed(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        value = parse_json(line)
    except UnreadableError as error:
        raise LiveError(f"line {number} of the journal {str(path)!r} is damaged: {error}") from None
    if not isinstance(value, dict):
        raise LiveError(f"line {number} of the journal {str(path)!r} is damaged: it is no object")
    return value


def _entry(line: dict[str, Any], path: Path, number: int) -> Entry:
    cycle, state = line.pop("cycle", None), line.pop("state", None)
    if not isinstance(cycle, int) or isinstance(cycle, bool) or cycle < 0:
        raise LiveError(f"line {number} of the journal {str(path)!r} is damaged: its cycle is {cycle!r:.80}")
    return Entry(cycle, line, state if isinstance(state, str) else None)
