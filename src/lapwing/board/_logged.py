"""What a run has logged besides numbers, for the page that shows it step by step.

The shelf has the events in memory; a request is looked up among them. A file is sent only if an event of the run names
it, it is in media/ of the run folder, and no link leads out of there.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lapwing.journal import JournalError, Run

from ._shelf import UnknownError

_FILE = re.compile(r"media/[^/]+\.(png|json)")
_FIELDS = ("step", "name", "kind", "time", "text", "length", "counts", "edges", "not_finite", "file")
_MORE_FIELDS = ("height", "width", "caption", "reduced", "columns", "rows")

Entries = Sequence[Mapping[str, Any]]


def logged_names(entries: Entries) -> list[dict[str, Any]]:
    """The names with their kind and the steps at which they were logged.

    >>> logged_names([{"name": "sample", "kind": "text", "step": step, "text": "a"} for step in (1, 5)])
    [{'name': 'sample', 'kind': 'text', 'steps': [1, 5]}]
    """
    steps: dict[tuple[str, str], dict[int, None]] = {}
    for entry in entries:
        steps.setdefault((entry["name"], entry["kind"]), {})[entry["step"]] = None
    return [{"name": name, "kind": kind, "steps": sorted(found)} for (name, kind), found in steps.items()]


def logged_entry(folder: Path, entries: Entries, name: str, kind: str, step: str) -> dict[str, Any]:
    """What was logged under a name at a step, the last if there are several; of a table with its content."""
    for entry in reversed(entries):
        if (entry["name"], entry["kind"], str(entry["step"])) == (name, kind, step):
            found = {key: entry[key] for key in (*_FIELDS, *_MORE_FIELDS) if key in entry}
            return found | ({"content": _table(folder, entry)} if kind == "table" else {})
    raise UnknownError(f"the run has logged no {kind} {name!r} at step {step}")


def logged_image(folder: Path, entries: Entries, file: str) -> Path | None:
    """The file of an image or figure that the run has logged; None if there is none."""
    kinds = ("image", "figure")
    if file.endswith(".png") and any(e.get("file") == file and e["kind"] in kinds for e in entries):
        return _path(folder, file)
    return None


def _table(folder: Path, entry: Mapping[str, Any]) -> Any:
    file = str(entry.get("file"))
    if not _FILE.fullmatch(file) or not file.endswith(".json"):
        return None
    try:
        content = Run.open(folder).read_json(file)
    except JournalError:
        return None
    match content:
        case {"columns": list(columns), "rows": list(rows)} if all(isinstance(row, list) for row in rows):
            return {"columns": columns, "rows": rows}
    return None


def _path(folder: Path, file: str) -> Path | None:
    path = Run.open(folder).file(file) if _FILE.fullmatch(file) else None
    return path if path is not None and path.is_file() else None
