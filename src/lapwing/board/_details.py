"""Everything about one run except its curves, as JSON for its page: settings, commands, marks, laps, journal, pictures.

The run folder is read for each response, in the thread that responds. A link that leads out of the run folder makes the
run unreadable.
"""

import os
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from lapwing.journal import Run, command_table, control_table, flat
from lapwing.report import fused_line, journal_html, marks_of, surroundings
from lapwing.timing import LapSummary, SummaryError, lap_rows

MOST_EVENTS = 200
PICTURES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".svg": "image/svg+xml",
}


def details(name: str, folder: Path) -> dict[str, Any]:
    """What the page of a run shows apart from its curves.

    >>> import tempfile
    >>> with Run.create("demo", {"learning_rate": 0.1}, runs_dir=tempfile.mkdtemp()) as run:
    ...     run.note("<b>calmer</b>")
    >>> shown = details(run.name, run.folder)
    >>> shown["config"], shown["notes"][0]["text"], "&lt;b&gt;calmer" in shown["journal"]
    ([('learning_rate', 0.1)], '<b>calmer</b>', True)
    """
    run = Run.open(folder)
    events = run.events()
    pictures = _pictures(folder, events)
    names = {picture["file"]: picture["name"] for picture in pictures}

    def address(file: str) -> str | None:
        return f"api/picture?{urlencode({'run': name, 'name': names[file]})}" if file in names else None

    return {
        "run": name,
        "folder": folder,
        "outcome": next((e.get("outcome") for e in reversed(events) if e.get("event") == run.state), None),
        "config": list(flat(run.config)),
        "environment": surroundings(run),
        "marks": [{"step": m.step, "text": m.text, "color": m.color, "note": m.note} for m in marks_of(run)],
        "notes": [event for event in events if event.get("event") == "note"][-MOST_EVENTS:],
        "answers": [event for event in events if event.get("event") in ("applied", "refused")][-MOST_EVENTS:],
        "commands": command_table(),
        "controls": control_table(run.controls or {}, run.control_arguments),
        "laps": _laps(run.laps),
        "path": _path(events),
        "pictures": pictures,
        "journal": journal_html(run, address),
        "damaged": run.damaged,
        "unreadable": run.unreadable,
    }


def system_columns(folder: Path) -> dict[str, list[float | None]]:
    """What the run uses of its machine, a list for each column: seconds since its start, and None for what is missing.

    >>> import tempfile
    >>> with Run.create("demo", runs_dir=tempfile.mkdtemp()) as run:
    ...     line = '{"time": %f, "cpu_percent": 99.0}' % (run.created + 10)
    ...     _ = run.put("system.jsonl", line + "\\n")
    >>> system_columns(run.folder)
    {'seconds': [10.0], 'cpu_percent': [99.0]}
    """
    run = Run.open(folder)
    columns = run.system()
    seconds = {"seconds": columns.pop("time") - run.created} if columns else {}
    return {
        name: [round(value, 3) if isfinite(value) else None for value in column.tolist()]
        for name, column in (seconds | columns).items()
    }


def plain_files(folder: Path) -> dict[str, Path]:
    """The files of a folder by name, without links."""
    if folder.is_symlink():
        return {}
    try:
        with os.scandir(folder) as entries:
            return {e.name: Path(e.path) for e in entries if e.is_file(follow_symlinks=False)}
    except OSError:
        return {}


def pictures_of(folder: Path) -> dict[str, Path]:
    """The pictures that a browser can show."""
    return {n: p for n, p in sorted(plain_files(folder).items()) if p.suffix.lower() in PICTURES}


def _pictures(folder: Path, events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    captions = {str(e.get("file")): e.get("caption") for e in events if e.get("event") == "picture"}
    found = [(name, f"pictures/{name}", path) for name, path in pictures_of(folder / "pictures").items()]
    return [
        {
            "name": name,
            "file": file,
            "caption": str(captions.get(file) or name),
            "changed": path.stat().st_mtime_ns,
        }
        for name, file, path in found
    ]


def _laps(laps: Any) -> dict[str, Any] | None:
    """The table, and the bars of the phases over the steady steps, with the unaccounted time last."""
    if not laps:
        return None
    try:
        summary = LapSummary.from_json(laps)
    except SummaryError as error:
        return {"error": str(error)}
    header, rows, remarks = lap_rows(summary)
    series = summary.series
    tops = [phase.path for phase in summary.phases if not phase.depth and phase.count]
    return {
        "header": header,
        "rows": rows,
        "remarks": [*remarks, *filter(None, [fused_line(laps)])],
        "stride": series.stride,
        "bars": {
            part: [seconds[series.parts.index(part)] for seconds in series.seconds]
            for part in (*tops, summary.unaccounted.path)
        },
    }


def _path(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The links and the error of each start after each round of a synthesis."""
    rounds = [
        (event["links"], event["error_after"])
        for event in events
        if event.get("event") == "round"
        and isinstance(event.get("links"), list)
        and isinstance(event.get("error_after"), list)
    ]
    starts = min((len(part) for each in rounds for part in each), default=0)
    return [
        {"links": [links[k] for links, _ in rounds], "errors": [errors[k] for _, errors in rounds]}
        for k in range(starts)
    ]
