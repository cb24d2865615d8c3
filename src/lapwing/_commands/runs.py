"""`lapwing runs` and `lapwing show`: reading run folders."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from lapwing.journal import JournalError, Run, find_run, moment, run_folders, run_name
from lapwing.report import fused_line, lap_table
from lapwing.timing import SummaryError

from .output import age, cell, print_json, print_rich, table
from .parse import RUNS, Json, RunName, RunsFolder

if TYPE_CHECKING:
    from lapwing.report import Glance


def list_runs(*, runs_dir: RunsFolder = RUNS, as_json: Json = False) -> None:
    """Lists all runs, newest first. A run is lost if its process ended without an event (it was killed)."""
    found = [_summary(folder, run_name(folder, runs_dir)) for folder in run_folders(runs_dir)]
    if as_json:
        print_json(found)
    elif not found:
        print(f"There are no runs in {runs_dir} yet; `lapwing list` shows what can be trained.")
    else:
        rows = [_row(run) for run in found]
        # An empty column is left out.
        header = [name for name in _COLUMNS if name != "rollbacks" or any(row[name] for row in rows)]
        print_rich(table(header, [[row[name] for name in header] for row in rows], _COLUMNS[2:]))


def show(run: RunName, *, runs_dir: RunsFolder = RUNS, as_json: Json = False) -> None:
    """Shows one run: state, numbers, times and journal."""
    chosen = Run.open(find_run(run, runs_dir))
    if as_json:
        print_json(_everything(chosen))
    else:
        print_rich(*_pages(chosen))


def _summary(folder: Path, name: str) -> dict[str, Any]:
    """A run in a few fields; a run that cannot be read must not hide the others."""
    try:
        run = Run.open(folder)
        return {
            "run": name,
            "folder": folder,
            "experiment": run.experiment,
            "state": run.state,
            "created": run.created,
            "latest": run.latest(),
            "rollbacks": sum(event.get("event") == "rollback" for event in run.events()),
        }
    except JournalError as error:
        return {"run": name, "folder": folder, "state": "unreadable", "error": str(error)}


_COLUMNS = ["run", "state", "step", "loss", "rollbacks", "age"]


def _row(run: dict[str, Any]) -> dict[str, Any]:
    latest = run.get("latest", {})
    since = age(run["created"]) if "created" in run else None
    values = [
        run["run"],
        run["state"],
        latest.get("step"),
        latest.get("loss"),
        run.get("rollbacks") or None,
        since,
    ]
    return dict(zip(_COLUMNS, values, strict=True))


def _everything(run: Run) -> dict[str, Any]:
    from lapwing.report import glance

    return {
        **_summary(run.folder, run.name),
        "glance": glance(run),
        "config": run.config,
        "environment": run.environment,
        "metrics": {name: _statistics(column) for name, column in run.columns().items()},
        "events": run.events(),
        "laps": run.laps,
        "damaged_lines": run.damaged,
    }


def _pages(run: Run) -> list[RenderableType]:
    from lapwing.report import glance  # It imports numpy, which a list of runs does not need.

    columns = {name: column for name, column in run.columns().items() if name not in ("step", "time")}
    rows = [[name, *_statistics(column).values()] for name, column in columns.items()]
    about = [
        ["state", run.state],
        ["experiment", run.experiment],
        ["started", f"{moment(run.created)} UTC, {age(run.created)} ago"],
        *_numbers(glance(run)),
        ["device", run.environment.get("device")],
        ["folder", run.folder],
    ]
    pages: list[RenderableType] = [table(["run", run.name], [row for row in about if row[1] is not None])]
    if rows:
        pages += ["", table(["metric", *_STATISTICS], rows, _STATISTICS)]
    if laps := run.laps:
        pages += ["", *_lap_pages(laps)]
    if run.damaged:
        pages += ["", f"{run.damaged} damaged lines were skipped."]
    return [*pages, "", cell(run.happened)]


def _numbers(seen: "Glance") -> list[list[Any]]:
    """The most important numbers; None where there are none."""
    lowest = None if seen.best is None else f"{seen.best:.6g} at step {seen.best_step}"
    rate = seen.steps_per_second
    speed = None if rate is None else f"{rate:.0f} steps/s" if rate >= 100 else f"{rate:.3g} steps/s"
    return [
        ["step", seen.step],
        ["loss", seen.loss],
        ["lowest loss", lowest],
        ["speed", speed],
        ["rollbacks", seen.rollbacks or None],
        ["restarts", seen.restarts or None],
        ["skipped updates", seen.skipped or None],
    ]


def _lap_pages(laps: Any) -> list[RenderableType]:
    try:
        return [lap_table(laps), *filter(None, [fused_line(laps)])]
    except SummaryError as error:
        return [f"laps.json cannot be shown: {error}"]


_STATISTICS = ["first", "latest", "lowest", "highest"]


def _statistics(column: Any) -> dict[str, float | None]:
    values = column[column == column]  # Without NaN.
    if not len(values):
        return dict.fromkeys(_STATISTICS)
    return dict(
        zip(_STATISTICS, map(float, [values[0], values[-1], values.min(), values.max()]), strict=True)
    )
