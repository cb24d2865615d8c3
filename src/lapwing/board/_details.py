"""Everything about one run that is no curve, as JSON for its page: settings, marks, laps, journal, pictures.

A run folder is read anew for each answer, in the thread that answers. Its files are read only if they are where they
seem to be: a link that leads out of the run folder makes the run unreadable.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lapwing.journal import Run, command_table, control_table, flat
from lapwing.report import fused_line, marks_of, to_html
from lapwing.timing import LapSummary, SummaryError, lap_rows

MOST_EVENTS = 200
MOST_JOURNAL_LINES = 1000
PICTURES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".svg": "image/svg+xml",
}
_FILES = (
    *("config.json", "environment.json", "metrics.jsonl", "events.jsonl", "journal.md", "laps.json", "lock"),
    "control",
)


def open_run(folder: Path) -> Run:
    """A run whose files are all inside its folder, or an error that names the one that is not."""
    run = Run.open(folder)
    for name in _FILES:
        run.file(name)
    return run


def details(name: str, folder: Path) -> dict[str, Any]:
    """What the page of a run shows beside its curves.

    >>> import tempfile
    >>> with Run.create("demo", {"learning_rate": 0.1}, runs_dir=tempfile.mkdtemp()) as run:
    ...     run.note("<b>calmer</b>")
    >>> told = details(run.name, run.folder)
    >>> told["config"], told["notes"][0]["text"], "&lt;b&gt;calmer" in told["journal"]
    ([('learning_rate', 0.1)], '<b>calmer</b>', True)
    """
    run = open_run(folder)
    events = run.events()
    pictures = _pictures(folder, events)
    shown = {picture["file"] for picture in pictures}
    return {
        "run": name,
        "folder": folder,
        "outcome": next((e.get("outcome") for e in reversed(events) if e.get("event") == run.state), None),
        "config": list(flat(run.config)),
        "environment": _surroundings(run.environment),
        "marks": [{"step": m.step, "text": m.text, "color": m.color, "note": m.note} for m in marks_of(run)],
        "notes": [event for event in events if event.get("event") == "note"][-MOST_EVENTS:],
        "answers": [event for event in events if event.get("event") in ("applied", "refused")][-MOST_EVENTS:],
        "commands": command_table(),
        "controls": control_table(run.controls or {}),
        "laps": _laps(run.laps),
        "path": _path(events),
        "pictures": pictures,
        "journal": _journal(run.story, name, shown),
        "damaged": run.damaged,
    }


def plain_files(folder: Path) -> dict[str, Path]:
    """The files of a folder by name; nothing that is a link, since it could lead anywhere."""
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
    told = {e.get("file"): e.get("caption") for e in events if e.get("event") == "picture"}
    found = [(name, f"pictures/{name}", path) for name, path in pictures_of(folder / "pictures").items()]
    return [
        {
            "name": name,
            "file": file,
            "caption": str(told.get(file) or name),
            "changed": path.stat().st_mtime_ns,
        }
        for name, file, path in found
    ]


def _surroundings(environment: Mapping[str, Any]) -> list[tuple[str, Any]]:
    command = environment.get("command")
    told = [("command", shlex.join(map(str, command)))] if isinstance(command, list) else []
    rest = {key: value for key, value in environment.items() if key != "command"}
    return told + [(path, value) for path, value in flat(rest) if value not in (None, {}, "")]


def _laps(laps: Any) -> dict[str, Any] | None:
    """The table, and the bars of the phases over the steady steps with the unaccounted rest last."""
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
    """How a machine became small: after each round the links and the error of each start."""
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


def _journal(story: str, name: str, pictures: set[str]) -> str:
    from urllib.parse import urlencode

    _, heading, told = story.partition("## What happened\n")
    lines = (told if heading else story).strip().splitlines()
    left_out = max(0, len(lines) - MOST_JOURNAL_LINES)
    before = f"<p>{left_out} earlier lines are in journal.md.</p>" if left_out else ""

    def address(file: str) -> str | None:
        query = urlencode({"run": name, "name": file.removeprefix("pictures/")})
        return f"api/picture?{query}" if file in pictures else None

    return before + to_html("\n".join(lines[left_out:]), address)
