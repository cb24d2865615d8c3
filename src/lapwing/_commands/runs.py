"""`lapwing runs`, `show` and `note`: reading run folders, and writing into their journals."""

import math
import time
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import RenderableType

from lapwing.journal import JournalError, Run, find_run, run_folders
from lapwing.report import lap_table
from lapwing.timing import SummaryError, format_seconds

from .output import age, cell, print_json, print_rich, table
from .parse import RUNS, Json, RunName, RunsFolder

NoteText = Annotated[
    tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TEXT", help="what to note")
]


def list_runs(*, runs_dir: RunsFolder = RUNS, as_json: Json = False) -> None:
    """Lists all runs, newest first. A run is lost when its process ended without a word."""
    found = [_summary(folder) for folder in run_folders(runs_dir)]
    if as_json:
        print_json(found)
    elif not found:
        print(f"There are no runs in {runs_dir} yet; `lapwing list` shows what can be trained.")
    else:
        rows = [_row(run) for run in found]
        print_rich(table(["run", "state", "step", "loss", "age"], rows, numbers=["step", "loss", "age"]))


def show(run: RunName, *, runs_dir: RunsFolder = RUNS, as_json: Json = False) -> None:
    """Shows one run: what it is, its numbers, where its time went, and what happened."""
    chosen = Run.open(find_run(run, runs_dir))
    if as_json:
        print_json(_everything(chosen))
    else:
        print_rich(*_pages(chosen))


def note(run: RunName, text: NoteText, *, runs_dir: RunsFolder = RUNS) -> None:
    """Adds a note to the journal of a run, also while it runs."""
    chosen = Run.open(find_run(run, runs_dir))
    chosen.note(" ".join(text))
    print(f"Noted in {chosen.folder / 'journal.md'}.")


def _summary(folder: Path) -> dict[str, Any]:
    """What is known of a run at a glance; one that cannot be read must not hide the others."""
    try:
        run = Run.open(folder)
        return {
            "run": run.name,
            "folder": folder,
            "experiment": run.experiment,
            "state": run.state,
            "created": run.created,
            "latest": run.latest(),
        }
    except JournalError as error:
        return {"run": folder.name, "folder": folder, "state": "unreadable", "error": str(error)}


def _row(run: dict[str, Any]) -> list[Any]:
    latest = run.get("latest", {})
    since = age(run["created"]) if "created" in run else None
    return [run["run"], run["state"], latest.get("step"), latest.get("loss"), since]


def _everything(run: Run) -> dict[str, Any]:
    return {
        **_summary(run.folder),
        "config": run.config,
        "environment": run.environment,
        "metrics": {name: _statistics(column) for name, column in run.columns().items()},
        "events": run.events(),
        "laps": run.laps,
        "damaged_lines": run.damaged,
    }


def _pages(run: Run) -> list[RenderableType]:
    columns = {name: column for name, column in run.columns().items() if name not in ("step", "time")}
    rows = [[name, *_statistics(column).values()] for name, column in columns.items()]
    started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(run.created))
    about = [
        ["state", run.state],
        ["experiment", run.experiment],
        ["started", f"{started}, {age(run.created)} ago"],
        ["step", run.latest().get("step")],
        ["folder", run.folder],
    ]
    pages: list[RenderableType] = [table(["run", run.name], about)]
    if rows:
        pages += ["", table(["metric", "first", "latest", "lowest", "highest"], rows, _NUMBERS)]
    if laps := run.laps:
        pages += ["", *_lap_pages(laps)]
    if run.damaged:
        pages += ["", f"{run.damaged} damaged lines were skipped."]
    return [*pages, "", cell(run.story.partition("## What happened\n\n")[2].rstrip())]


def _lap_pages(laps: Any) -> list[RenderableType]:
    """The table, and what `fit` adds to it: its phases are timed apart, and the step as it runs beside them."""
    try:
        pages: list[RenderableType] = [lap_table(laps)]
    except SummaryError as error:
        return [f"laps.json cannot be shown: {error}"]
    fused = laps.get("fused") or {}
    if fused.get("p50"):
        pages.append(f"Fused, as it runs: {format_seconds(fused['p50'] / fused['steps_per_call'])} a step.")
    return pages


_NUMBERS = ["first", "latest", "lowest", "highest"]


def _statistics(column: Any) -> dict[str, float | None]:
    values = [value for value in column if not math.isnan(value)]
    if not values:
        return dict.fromkeys(_NUMBERS)
    return dict(zip(_NUMBERS, [values[0], values[-1], min(values), max(values)], strict=True))
