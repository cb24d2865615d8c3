"""One self-contained HTML page of a run: pictures, numbers, times, journal, settings and environment.

The page is one file: pictures are embedded, for light and for dark colours, and nothing is loaded. There is no script,
and a content security policy forbids any; all text of the run is escaped.
"""

import html
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lapwing.core import format_wait
from lapwing.journal import Run, flat, moment
from lapwing.timing import LapSummary, SummaryError, lap_rows

from ._glance import glance, surroundings
from ._html import cell, embedded, figure, section, table
from ._laps import fused_line
from ._logged import logged_html
from ._markdown import Embed, to_html
from ._pictures import Picture
from ._style import STYLE

MOST_EVENTS = 500
MOST_JOURNAL_LINES = 1000
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_PAIR = ("learning_rate.png", "gradient.png")


def report_page(run: Run, pictures: Sequence[Picture]) -> str:
    """The page of a run, with the pictures that `run_pictures` made of it.

    >>> import tempfile
    >>> with Run.create("demo", {"learning_rate": 0.1}, runs_dir=tempfile.mkdtemp()) as run:
    ...     run.note("<b>so far so good</b>")
    >>> page = report_page(run, [])
    >>> "finished" in page, "&lt;b&gt;so far" in page, "<script" in page
    (True, True, False)
    """
    name = html.escape(run.name)
    figures = {picture.name: figure(picture) for picture in pictures}
    phases = figures.pop("phases.png", "")
    body = "\n".join(
        [
            _header(run),
            _tiles(run),
            _curves(figures),
            section("Logged", logged_html(run)),
            section("Where the time of a step goes", phases + _laps(run)),
            section("What happened", _journal(run)),
            section("Pictures", _own_pictures(run, {picture.name for picture in pictures})),
            section("Source", _source(run)),
            section("Settings", _pairs(flat(run.config))),
            section("Environment", _pairs(surroundings(run))),
            section("Not readable", _not_readable(run)),
        ]
    )
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style></head>\n<body><main>\n{body}\n</main></body></html>\n"
    )
    return page.encode(
        errors="replace"
    ).decode()  # Half a character, as an old terminal types it, has no bytes.


def _header(run: Run) -> str:
    state = html.escape(run.state)
    started = f"{html.escape(run.experiment)}, started {moment(run.created)} UTC"
    ends = [event for event in run.events() if event.get("event") == run.state]
    outcome = ends[-1].get("outcome", "") if ends else ""
    return (
        f'<header><h1>{html.escape(run.name)} <span class="state {state}">{state}</span></h1>'
        f'<p class="soft">{started}; this page was made {moment(time.time())} UTC</p>'
        f"<p>{html.escape(str(outcome))}</p></header>"
    )


def _tiles(run: Run) -> str:
    seen = glance(run)
    speed = seen.steps_per_second
    tiles = [
        ("step", seen.step),
        ("loss", seen.loss),
        (f"lowest loss, at step {seen.best_step}", seen.best),
        ("steps/s", None if speed is None else f"{speed:.3g}" if speed < 100 else f"{speed:.0f}"),
        ("time", format_wait(seen.seconds)),
        ("rollbacks", seen.rollbacks or None),
        ("restarts", seen.restarts or None),
        ("skipped updates", seen.skipped or None),
        ("device", run.environment.get("device")),
    ]
    shown = [f'<div class="tile"><b>{cell(v)}</b><span>{n}</span></div>' for n, v in tiles if v is not None]
    return f'<div class="tiles">{"".join(shown)}</div>'


def _curves(figures: dict[str, str]) -> str:
    pair = "".join(figures.get(name, "") for name in _PAIR)
    others = "".join(each for name, each in figures.items() if name not in ("loss.png", *_PAIR))
    return figures.get("loss.png", "") + (f'<div class="pair">{pair}</div>' if pair else "") + others


def _laps(run: Run) -> str:
    laps = run.laps
    if not laps:
        return ""
    try:
        header, rows, remarks = lap_rows(LapSummary.from_json(laps))
    except SummaryError as error:
        return f"<p>laps.json cannot be shown: {html.escape(str(error))}</p>"
    lines = [*remarks, *filter(None, [fused_line(laps)])]
    return table(header, rows, kind="numbers", total=True) + "".join(
        f"<p>{html.escape(line)}</p>" for line in lines
    )


def journal_html(run: Run, embed: Embed) -> str:
    """The last lines of a run's journal as HTML; `embed` returns the address of a picture, or None.

    >>> import tempfile
    >>> with Run.create("demo", runs_dir=tempfile.mkdtemp()) as run:
    ...     run.note("<b>calmer</b>")
    >>> "note: &lt;b&gt;calmer" in journal_html(run, lambda name: None)
    True
    """
    lines = run.happened.splitlines()
    omitted = max(0, len(lines) - MOST_JOURNAL_LINES)
    before = f'<p class="soft">{omitted} earlier lines are in journal.md.</p>' if omitted else ""
    return before + to_html("\n".join(lines[omitted:]), embed)


def _journal(run: Run) -> str:
    journal = journal_html(run, lambda name: embedded(run, name))
    return (f'<div class="card">{journal}</div>' if journal else "") + _events(run.events())


def _events(events: Sequence[Mapping[str, Any]]) -> str:
    events = [event for event in events if event.get("event") != "logged"]  # They are shown above.
    if not events:
        return ""
    rows = []
    for event in events[-MOST_EVENTS:]:
        when, what = event.get("time"), event.get("event")
        rest = {key: value for key, value in event.items() if key not in ("time", "event", "id", "step")}
        fields = ", ".join(f"{key}: {value}" for key, value in flat(rest))
        rows.append([moment(when) if isinstance(when, int | float) else "", event.get("step"), what, fields])
    title = f"{len(events)} events" + (f", the last {MOST_EVENTS}" if len(events) > MOST_EVENTS else "")
    return f"<details><summary>{title}</summary>{table(['time', 'step', 'event', 'fields'], rows)}</details>"


def _not_readable(run: Run) -> str:
    """What is missing on this page; called last, when everything was asked for."""
    lines = [f"{run.damaged} damaged lines were skipped."] * bool(run.damaged) + list(run.unreadable.values())
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


def _source(run: Run) -> str:
    """The file that the run was trained from, and its copy in the folder."""
    return _pairs(flat({key: value for key, value in (run.source or {}).items() if key != "target"}))


def _own_pictures(run: Run, drawn: set[str]) -> str:
    """The pictures that the run itself has drawn and its journal does not show."""
    story, figures = run.story, ""
    for path in run.pictures:
        name = f"pictures/{path.name}"
        if path.name not in drawn and f"]({name})" not in story and (address := embedded(run, name)):
            caption = html.escape(path.name)
            figures += (
                f'<figure><img src="{address}" alt="{caption}"><figcaption>{caption}</figcaption></figure>'
            )
    return figures


def _pairs(pairs: Iterable[tuple[str, Any]]) -> str:
    rows = list(pairs)
    return table(None, rows) if rows else ""
