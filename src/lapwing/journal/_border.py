"""The border of a run folder: what may be in its files. Every file of a run is read through here.

A run folder may be damaged, copied by hand, or made by somebody else to do harm. So its files are regular files inside
the folder, of bounded size, with lines of bounded length and JSON of bounded depth (`lapwing.core` has these rules),
and what is in them has the types that are declared here. Code behind the border believes what it gets.

What does not fit is refused as far as it reaches and no further: a line is skipped and counted (`Run.damaged`), a part
that the run can be understood without is left out and named (`Run.unreadable`), and without a sound config.json the run
alone is unreadable.
"""

import math
import os
from pathlib import Path
from typing import Any, BinaryIO

from lapwing.core import open_regular, parse_json, read_regular

from ._errors import JournalError, reading
from ._find import inside
from ._json import restore
from ._legacy import FORMAT

Record = dict[str, Any]

LONGEST_LINE = 1 << 23
MOST_JSON_BYTES = 1 << 23
MOST_TEXT_BYTES = 1 << 26
MOST_STEP = 2**53
"""Larger floats have gaps between whole numbers."""
FAR_FUTURE = 1e11
"""In seconds: later than any run, and early enough for every calendar."""
_FILES = {
    *("config.json", "environment.json", "source.json", "laps.json", ".best.json", "lock"),
    *("metrics.jsonl", "events.jsonl", "system.jsonl", "journal.md"),
}
_FOLDERS = {"control", "media"}


def check_folder(folder: Path) -> None:
    """**Raises** `JournalError` if a file of a run is not a regular one, or if a link leads out of the folder."""
    with reading(folder), os.scandir(folder) as entries:
        for entry in entries:
            is_file = entry.name in _FILES
            if is_file and entry.is_file(follow_symlinks=False):
                continue
            if is_file or entry.name in _FOLDERS:
                inside(folder, entry.name)
            if is_file and not entry.is_file():
                raise JournalError(f"cannot read {folder / entry.name}: it is not a regular file")


def open_lines(path: Path) -> BinaryIO | None:
    """Opens a file of a run folder; None if there is none."""
    with reading(path):
        try:
            return open_regular(path, within=path.parent)
        except FileNotFoundError:
            return None


def read_json(folder: Path, name: str) -> Any:
    """The content of a JSON file of a run folder; None if there is none."""
    path = folder / name if name in _FILES else inside(folder, name)
    with reading(path):
        try:
            return restore(parse_json(read_regular(path, MOST_JSON_BYTES, within=folder)))
        except FileNotFoundError:
            return None


def read_text(folder: Path, name: str) -> str:
    """The text of a file of a run folder, the empty one if there is none."""
    path = folder / name
    with reading(path):
        try:
            return read_regular(path, MOST_TEXT_BYTES, within=folder).decode(errors="replace")
        except FileNotFoundError:
            return ""


def read_header(folder: Path) -> Record:
    """The content of config.json, if Lapwing wrote it: many programs have a file of that name."""
    path, content = folder / "config.json", read_json(folder, "config.json")
    header = content if isinstance(content, dict) else {}
    format_, created = header.get("format"), header.get("created")
    if type(format_) is not int:
        raise JournalError(f"{path} does not belong to a run: Lapwing writes a number 'format' into it")
    if format_ > FORMAT:
        raise JournalError(f"the run {folder.name} was written by a newer Lapwing; update this one")
    if not _is_between(created, 0, FAR_FUTURE):
        raise JournalError(f"{path} is damaged: 'created' should be seconds since 1970, but is {created!r}")
    for field, kind, word in (("experiment", str, "a text"), ("config", dict, "an object")):
        if not isinstance(header.setdefault(field, kind()), kind):
            raise JournalError(f"{path} is damaged: {field!r} should be {word}, but is {header[field]!r:.80}")
    return header


def fitting_rows(records: list[Any]) -> list[Record]:
    """The records that are rows of numbers: those with a step and a time in range, where they have one.

    >>> fitting_rows([{"step": 1, "loss": "NaN"}, {"step": [1]}, {"time": 1e300}, 5])
    [{'step': 1, 'loss': 'NaN'}]
    """
    if all(type(record) is dict for record in records) and _all_fit(records):
        return records
    return [record for record in records if type(record) is dict and _all_fit([record])]


def _all_fit(rows: list[Record]) -> bool:
    """All at once, several times faster than row by row. The sum shows a NaN, which `min` and `max` may not."""
    for name, most in (("step", MOST_STEP), ("time", FAR_FUTURE), ("back_to", MOST_STEP)):
        values = [row[name] for row in rows if name in row]
        if not values:
            continue
        if not set(map(type, values)) <= {int, float} or not -most <= min(values) <= max(values) <= most:
            return False
        if not math.isfinite(sum(values)):
            return False
    return True


def fitting_events(records: list[Any]) -> list[Record]:
    """The records that are events: with a text as name, and a time and a number of a step in range.

    >>> fitting_events([{"event": "note", "time": 0.0}, {"event": ["note"]}, {"event": "note", "time": 1e300}])
    [{'event': 'note', 'time': 0.0}]
    """
    return [record for record in records if type(record) is dict and _is_event(record)]


def _is_event(record: Record) -> bool:
    step = record.get("step")
    return (
        isinstance(record.get("event"), str)
        and _is_between(record.get("time", 0.0), 0, FAR_FUTURE)
        and (not isinstance(step, int | float) or _is_between(step, -MOST_STEP, MOST_STEP))
    )


def _is_between(value: Any, low: float, high: float) -> bool:
    return type(value) in (int, float) and low <= value < high
