"""Reading files that grow, without reading anything twice.

A `Tail` remembers its position, so following a run costs what is new, not what is there. It reads complete lines only:
a torn last line is left for the next call, when it may be whole. A complete line that is not a record (a disk error, or
one that does not fit, see `_border`) is skipped and counted in `damaged`, so that it does not hide the rest of a run.

Lines are parsed a block at a time, as one JSON list, which is several times faster than line by line.

A run may return to an earlier step (a rollback, a resume from a checkpoint). Files only grow, so this is a line of its
own in the metrics, `{"back_to": 1200}`: rows before it from that step on are no longer part of the run.
"""

import itertools
import json
import math
import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from lapwing.core import UnreadableError, check_json

from ._border import LONGEST_LINE, Record, fitting_rows, open_lines
from ._errors import JournalError, reading
from ._json import NOT_FINITE, restore

Fitting = Callable[[list[Any]], list[Record]]
Translate = Callable[[Record], Record]
_BLOCK = 1 << 22
_LAST_BLOCK = 1 << 16
BACK_TO = "back_to"
"""The key of a record that says to which step a run went back; later steps before it do not count."""
MOST_COLUMNS = 10_000
"""More names than this are no metrics: a column costs memory for every row."""


class Tail:
    """The new records of a file of lines since the last call: those that are `fitting`, translated by `translate`.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "metrics.jsonl")
    >>> tail = Tail(path)
    >>> tail.read()
    []
    >>> _ = path.write_text('{"step": 1}\\n{"step": 2}\\n{"st')
    >>> tail.read(), tail.read()
    ([{'step': 1}, {'step': 2}], [])
    """

    def __init__(self, path: Path, translate: Translate | None = None, fitting: Fitting = fitting_rows):
        self.path = path
        self.damaged = 0
        self.position = 0
        """The number of bytes read so far, always a whole number of lines."""
        self._translate = translate
        self._fitting = fitting

    def read(self) -> list[Record]:
        """The records that were completed since the last call."""
        restored = [self._restored(record) for batch in self.batches() for record in batch]
        self.damaged += restored.count(None)
        return [record for record in restored if record is not None]

    def batches(self, size: int = _BLOCK) -> Iterator[list[Record]]:
        """The same in batches of about `size` bytes, with numbers that are not finite still as JSON holds them."""
        for lines in self.blocks(self.position, size):
            self.position += len(lines)
            yield self._parse(lines)

    def blocks(self, position: int = 0, size: int = _BLOCK) -> Iterator[bytes]:
        """The complete lines from a position on, about `size` bytes at a time. The own position does not move."""
        file = self.open()
        if file is None:
            return
        with file, reading(self.path):
            file.seek(position)
            while block := file.read(size):
                block += file.readline(LONGEST_LINE)
                complete = block[: block.rfind(b"\n") + 1]
                if len(block) - len(complete) >= LONGEST_LINE:
                    raise JournalError(
                        f"cannot read {self.path}: it has a line of more than {LONGEST_LINE} bytes"
                    )
                if complete:
                    yield complete
                if len(complete) < len(block):
                    return

    def open(self) -> BinaryIO | None:
        """Opens the file at its beginning; None if there is none."""
        return open_lines(self.path)

    def latest(self) -> Record:
        """The newest value of each name, from the end of a file of any length. The position does not move.

        A name that was last written more than 64 KiB before the end is not found.
        """
        file = self.open()
        if file is None:
            return {}
        with file, reading(self.path):
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LAST_BLOCK))
            lines = file.read(_LAST_BLOCK).split(b"\n")
        if size > _LAST_BLOCK:
            lines = lines[1:]  # It probably starts in the middle of a line.
        newest: Record = {}
        for line in lines[:-1]:
            record = self._restored(self.parse_line(line) or {}) or {}
            if BACK_TO in record:
                record["step"] = record.pop(BACK_TO)
            newest.update(record)
        return newest

    def parse_line(self, line: bytes) -> Record | None:
        """The record of one line, or None if it is not one."""
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return None
        fitting = self._fitting([record])
        return self._translated(fitting)[0] if fitting else None

    def _parse(self, lines: bytes) -> list[Record]:
        count = lines.count(b"\n")
        try:
            records = json.loads(b"[" + lines[:-1].replace(b"\n", b",") + b"]")
        except (ValueError, RecursionError):
            records = []
        if len(records) == count:
            records = self._translated(self._fitting(records))
        else:
            # Not `splitlines`, which also splits at a carriage return.
            each = (self.parse_line(line) for line in lines[:-1].split(b"\n"))
            records = [record for record in each if record is not None]
        self.damaged += count - len(records)
        return records

    def _translated(self, records: list[Record]) -> list[Record]:
        return list(map(self._translate, records)) if self._translate else records

    @staticmethod
    def _restored(record: Record) -> Record | None:
        try:
            return restore(check_json(record))
        except UnreadableError:
            return None


class Columns:
    """A metrics file as columns: one float64 `array.array` per name, all of one length, NaN where a row lacks the name.

    `numpy.asarray(column)` shares its memory. A column once returned never changes: `update` returns longer ones.
    """

    def __init__(self, tail: Tail):
        self._tail = tail
        self._columns: dict[str, array[float]] = {}
        self._rows = 0

    @property
    def damaged(self) -> int:
        return self._tail.damaged

    def update(self) -> dict[str, "array[float]"]:
        """Reads the new rows; returns all columns."""
        fresh: dict[str, array[float]] = {}
        rows = 0
        for batch in self._tail.batches():
            for stretch, back_to in stretches(batch):
                for name in _names(stretch):
                    if len(fresh) >= MOST_COLUMNS and name not in fresh:
                        continue
                    column = fresh.setdefault(name, array("d"))
                    column.extend(_missing(rows - len(column)))
                    column.extend(_numbers([record.get(name) for record in stretch]))
                rows += len(stretch)
                if back_to is not None:
                    self._grow(fresh, rows)
                    self._truncate_to(back_to)
                    fresh, rows = {}, 0
        if rows:
            self._grow(fresh, rows)
        return dict(self._columns)

    def _truncate_to(self, step: float) -> None:
        kept = [not at >= step for at in self._columns.get("step", ())]
        self._columns = {
            name: array("d", itertools.compress(column, kept)) for name, column in self._columns.items()
        }
        self._rows = sum(kept)

    def _grow(self, fresh: dict[str, "array[float]"], rows: int) -> None:
        for name in list({**self._columns, **fresh})[:MOST_COLUMNS]:
            new = fresh.get(name, array("d"))
            new.extend(_missing(rows - len(new)))
            # Not extended in place: a caller may share the memory of the old one.
            self._columns[name] = self._columns.get(name, _missing(self._rows)) + new
        self._rows += rows


def stretches(batch: list[Record]) -> Iterator[tuple[list[Record], float | None]]:
    """The batch in parts, each with the step to which the run returned after it.

    >>> list(stretches([{"step": 0}, {"step": 1}, {"back_to": 1}, {"step": 1}]))
    [([{'step': 0}, {'step': 1}], 1.0), ([{'step': 1}], None)]
    """
    start = 0
    for end in [index for index, record in enumerate(batch) if BACK_TO in record]:
        yield batch[start:end], as_number(batch[end][BACK_TO])
        start = end + 1
    yield batch[start:], None


def _names(batch: list[Record]) -> list[str]:
    if not batch:
        return []
    first = list(batch[0])
    return first + sorted(set().union(*batch).difference(first))


def _missing(count: int) -> "array[float]":
    return array("d", [math.nan]) * count


def _numbers(values: list[Any]) -> "array[float]":
    try:
        return array("d", values)
    except (TypeError, OverflowError):
        return array("d", [as_number(value) for value in values])


def as_number(value: Any) -> float:
    """A value of a row as a float, NaN if it is not a number."""
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:  # An integer of more digits than any float has.
            return math.inf if value > 0 else -math.inf
    return NOT_FINITE.get(value, math.nan) if isinstance(value, str) else math.nan
