"""`lapwing runs` and `lapwing show`: reading run folders."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import RenderableType

from lapwing.core import hide_in_text
from lapwing.journal import JournalError, Run, describe_system, find_run, moment, run_folders, run_name
from lapwing.report import fused_line, lap_table
from lapwing.timing import SummaryError

from .output import age, cell, print_json, print_rich, table
from .parse import RUNS, Json, RunName
from .storing import RunsPlace, runs_folder

if TYPE_CHECKING:
    from lapwing.report import Glance

WithTags = Annotated[tuple[str, ...], tyro.conf.arg(metavar="TAG", help="only runs that have these tags")]
Sort = Annotated[
    Literal["age", "name", "state", "step", "loss", "best"],
    tyro.conf.arg(help="newest, most steps, lowest loss or best first, or by name or state"),
]


def list_runs(
    *, tag: WithTags = (), sort: Sort = "age", place: RunsPlace = str(RUNS), as_json: Json = False
) -> None:
    """Lists all runs, newest first. A run is lost if its process ended without an event (it was killed)."""
    runs_dir = runs_folder(place)
    found = [_summary(folder, run_name(folder, runs_dir)) for folder in run_folders(runs_dir)]
    shown = sorted((run for run in found if set(tag) <= set(run.get("tags", ()))), key=_ORDERS[sort])
    if as_json:
        print_json(shown)
    elif not found:
        print(f"There are no runs in {hide_in_text(place)} yet; `lapwing list` shows what can be trained.")
    elif not shown:
        print(f"No run in {hide_in_text(place)} has the tag {' and '.join(tag)}.")
    else:
        _print_table(shown)


def _print_table(runs: list[dict[str, Any]]) -> None:
    rows = [_row(run) for run in runs]
    titles = {name: name for name in _COLUMNS}
    metrics = {run["best"].metric for run in runs if run.get("best")}
    if len(metrics) == 1:  # Then the header names it.
        titles["best"] = f"best {metrics.pop()}"
        for row, run in zip(rows, runs, strict=True):
            row["best"] = run["best"].value if run.get("best") else None
    # An empty column is left out.
    kept = [name for name in _COLUMNS if name not in _OPTIONAL or any(row[name] is not None for row in rows)]
    numbers = [titles[name] for name in _NUMBERS]
    print_rich(
        table([titles[name] for name in kept], [[row[name] for name in kept] for row in rows], numbers),
        *(f"{run['run']} is unreadable: {run['error']}" for run in runs if "error" in run),
        *(
            f"{run['run']}: {run['damaged_lines']} damaged lines were skipped"
            for run in runs
            if run.get("damaged_lines")
        ),
    )


def show(run: RunName, *, place: RunsPlace = str(RUNS), as_json: Json = False) -> None:
    """Shows one run: state, numbers, times and journal."""
    chosen = Run.open(find_run(run, runs_folder(place)))
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
            "best": run.best(),
            "tags": run.tags,
            "rollbacks": sum(event.get("event") == "rollback" for event in run.events()),
            "damaged_lines": run.damaged,
        }
    except JournalError as error:
        return {"run": name, "folder": folder, "state": "unreadable", "error": str(error)}


_COLUMNS = ["run", "state", "step", "loss", "best", "rollbacks", "tags", "age"]
_OPTIONAL = ("best", "rollbacks", "tags")
_NUMBERS = ("step", "loss", "best", "rollbacks", "age")


def _row(run: dict[str, Any]) -> dict[str, Any]:
    latest = run.get("latest", {})
    since = age(run["created"]) if "created" in run else None
    values = [
        run["run"],
        run["state"],
        latest.get("step"),
        latest.get("loss"),
        f"{best.metric} {best.value:.6g}" if (best := run.get("best")) else None,
        run.get("rollbacks") or None,
        ", ".join(run.get("tags", ())) or None,
        since,
    ]
    return dict(zip(_COLUMNS, values, strict=True))


def _by_best(run: dict[str, Any]) -> tuple[str, float]:
    """Better ones first, those without a best one last."""
    best = run.get("best")
    return (
        (best.metric, -best.value if best.mode == "max" else best.value) if best else ("\U0010ffff", math.inf)
    )


def _by_number(name: str, sign: int) -> Callable[[dict[str, Any]], float]:
    def key(run: dict[str, Any]) -> float:
        value = run.get("latest", {}).get(name)
        return sign * value if isinstance(value, int | float) and value == value else math.inf

    return key


_ORDERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "age": lambda run: 0,  # They are in this order already.
    "name": lambda run: run["run"],
    "state": lambda run: run["state"],
    "step": _by_number("step", -1),
    "loss": _by_number("loss", 1),
    "best": _by_best,
}


def _everything(run: Run) -> dict[str, Any]:
    from lapwing.report import glance

    return {
        **_summary(run.folder, run.name),
        "glance": glance(run),
        "source": run.source,
        "config": run.config,
        "environment": run.environment,
        "metrics": {name: _statistics(column) for name, column in run.columns().items()},
        "events": run.events(),
        "laps": run.laps,
        "system": {name: _statistics(column) for name, column in run.system().items()},
        "damaged_lines": run.damaged,
        "unreadable": run.unreadable,
    }


def _pages(run: Run) -> list[RenderableType]:
    from lapwing.report import glance  # It imports numpy, which a list of runs does not need.

    columns = {name: column for name, column in run.columns().items() if name not in ("step", "time")}
    rows = [[name, *_statistics(column).values()] for name, column in columns.items()]
    about = [
        ["state", run.state],
        ["experiment", run.experiment],
        ["source", (run.source or {}).get("path")],
        ["started", f"{moment(run.created)} UTC, {age(run.created)} ago"],
        *_numbers(glance(run)),
        ["tags", ", ".join(run.tags) or None],
        *map(list, describe_system(run.system())),
        ["device", run.environment.get("device")],
        ["folder", run.folder],
    ]
    pages: list[RenderableType] = [table(["run", run.name], [row for row in about if row[1] is not None])]
    if rows:
        pages += ["", table(["metric", *_STATISTICS], rows, _STATISTICS)]
    if laps := run.laps:
        pages += ["", *_lap_pages(laps)]
    happened = cell(run.happened)
    if run.damaged:
        pages += ["", f"{run.damaged} damaged lines were skipped."]
    return [*pages, *run.unreadable.values(), "", happened]


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
