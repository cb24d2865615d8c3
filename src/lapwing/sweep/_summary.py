"""The files of a sweep beside its points: sweep.json, its description; summary.json, .csv and heat maps, its results.

A heat map shows two axes. With more, there is one for each pair, and a cell is the mean over all the others. With one
axis it has one row. Axes with ranges have no cells and no heat map.
"""

import contextlib
import csv
import importlib.metadata
import io
import itertools
import json
import math
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lapwing import __version__
from lapwing.core import UnreadableError, read_regular, replace_file
from lapwing.experiments import Source
from lapwing.journal import Lock, LockedError, from_json, to_json

from ._axes import Axis, SweepError
from ._points import Sweep
from ._results import Measure

_COLUMNS = ("steps", "seeds", "finished", "mean", "spread", "least", "most", "success", "pruned")
_MOST_CELLS_A_SIDE = 40
_MOST_BYTES = 1 << 23


@contextlib.contextmanager
def held(folder: Path) -> Iterator[Lock]:
    """Creates the folder of a sweep, and locks it: two sweeps there would start and delete each other's points."""
    if not (folder / "sweep.json").exists() and _has_files(folder):
        raise SweepError(f"{folder} is not empty and holds no sweep; choose another --name")
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = Lock(folder)
        except LockedError as error:
            raise SweepError(
                f"the sweep {folder.name} is being run by {error.owner or 'another process'}; wait for it, or stop it "
                "first: it continues with the same command"
            ) from None
    try:
        yield lock
    finally:
        lock.release()


def _has_files(folder: Path) -> bool:
    return folder.exists() and any(each.name != "lock" for each in folder.iterdir())


def prepare(
    folder: Path,
    sweep: Sweep,
    measure: Measure,
    source: Source | None = None,
    *,
    allow_change: bool = False,
) -> None:
    """Describes the sweep in its folder, or checks that it belongs to this sweep, and to its file as it is now."""
    path = folder / "sweep.json"
    created = time.time()
    if path.exists():
        there, _ = load(folder, type(sweep.search))
        created = read(path).get("created", created)
        if there != sweep:
            raise SweepError(
                f"{folder} holds another sweep; continue that one with `lapwing sweep --resume {folder}`, or give this "
                "one another --name"
            )
        if not allow_change:
            _check_source(folder, source)
    versions = {"lapwing": __version__, "jax": importlib.metadata.version("jax")}
    content = {**sweep.to_json(), "measure": measure, "created": created, "versions": versions}
    if source:
        copy = f"source/{source.path.name}"
        content["source"] = {"path": str(source.path), "sha256": source.sha256, "copy": copy}
        _write(folder / copy, source.content)
    _write(path, _pretty(content).encode())


def _check_source(folder: Path, source: Source | None) -> None:
    """All points of a sweep train the same file."""
    before = read(folder / "sweep.json").get("source")
    if source and before and before["sha256"] != source.sha256:
        raise SweepError(
            f"{source.path.name} has changed since this sweep began (diff {folder / before['copy']} {source.path}); "
            "give the sweep another --name, or continue this one with --allow-change"
        )


def load(folder: str | os.PathLike[str], search: type | None = None) -> tuple[Sweep, Measure]:
    """The sweep of a folder, and its measure. `search` is the class of its search if that is not one of Lapwing's.

    >>> load("runs/none")
    Traceback (most recent call last):
    lapwing.sweep._axes.SweepError: 'runs/none' is not the folder of a sweep: sweep.json: No such file or directory
    """
    path = Path(folder) / "sweep.json"
    try:
        content = read(path)
        return Sweep.from_json(content, search), Measure(**content["measure"])
    except OSError as error:
        raise SweepError(
            f"{os.fspath(folder)!r} is not the folder of a sweep: {path.name}: {error.strerror}"
        ) from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise SweepError(f"{path} cannot be read: {error}") from error


def write(folder: Path, sweep: Sweep, summary: Mapping[str, Any]) -> None:
    """Writes the summary, as JSON and as a table."""
    _write(folder / "summary.json", _pretty(summary).encode())
    _write(folder / "summary.csv", _table(sweep.axes, summary["rows"]).encode())


def draw(folder: Path, sweep: Sweep, summary: Mapping[str, Any], measure: Measure) -> list[Path]:
    """Draws the heat maps and returns their paths. The first is heatmap.png."""
    if not all(axis.is_listed and len(axis.values) <= _MOST_CELLS_A_SIDE for axis in sweep.axes):
        return []
    if not any(row["mean"] is not None and math.isfinite(row["mean"]) for row in summary["rows"]):
        return []
    pairs = list(itertools.combinations(sweep.axes, 2)) or [(axis, None) for axis in sweep.axes]
    made = []
    for number, (rows, columns) in enumerate(pairs):
        words = [axis.path for axis in (rows, columns) if axis]
        path = folder / ("heatmap.png" if number == 0 else f"heatmap-{'-'.join(words)}.png")
        _write(path, _heat_map(rows, columns, summary, measure))
        made.append(path)
    return made


def _heat_map(rows: Axis, columns: Axis | None, summary: Mapping[str, Any], measure: Measure) -> bytes:
    from lapwing.report import heat_map

    across = columns.values if columns else [None]

    def cell(down: Any, right: Any) -> tuple[float | None, str]:
        here = [
            row
            for row in summary["rows"]
            if row["values"][rows.path] == down and (columns is None or row["values"][columns.path] == right)
        ]
        means = [row["mean"] for row in here if row["mean"] is not None]
        rates = [row["success"] for row in here if row["success"] is not None]
        return (
            statistics.fmean(means) if means else None,
            f"success {statistics.fmean(rates):.0%}" if rates else "",
        )

    seeds = f", mean of {summary['seeds']} seeds" if summary["seeds"] > 1 else ""
    cells = [[cell(down, right) for right in across] for down in rows.values]
    return heat_map(
        [[value for value, _ in line] for line in cells],
        rows=(rows.path, [str(value) for value in rows.values]),
        columns=(columns.path if columns else "", [str(value) for value in across] if columns else [""]),
        notes=[[note for _, note in line] for line in cells],
        label=measure.metric,
        title=f"{summary['experiment']}: {measure.metric}{seeds}",
        limits=(0.0, 1.0) if measure.is_share else None,
    ).light


def _table(axes: Sequence[Axis], rows: Sequence[Mapping[str, Any]]) -> str:
    seeds = list(dict.fromkeys(seed for row in rows for seed in row["by_seed"]))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(axis.path for axis in axes), *_COLUMNS, *(f"seed={seed}" for seed in seeds)])
    for row in rows:
        numbers = [row[name] for name in _COLUMNS]
        writer.writerow([*row["values"].values(), *numbers, *(row["by_seed"].get(seed) for seed in seeds)])
    return text.getvalue()


def read(path: Path) -> dict[str, Any]:
    """The content of a JSON file of a sweep. **Raises** `OSError` or `UnreadableError`."""
    content = from_json(read_regular(path, _MOST_BYTES, within=path.parent))
    if not isinstance(content, dict):
        raise UnreadableError("it should be an object")
    return content


def _pretty(content: Any) -> str:
    return json.dumps(json.loads(to_json(content)), indent=1) + "\n"


def _write(path: Path, content: bytes) -> None:
    """Atomically: others read these files while the sweep runs."""
    with _writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SweepError(
            f"cannot write to {folder}: {error.strerror}; choose another folder with --runs"
        ) from error
