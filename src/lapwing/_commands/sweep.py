"""`lapwing sweep NAME --grid OPTION=VALUES ...`: an experiment over a grid of options, with several seeds."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import RenderableType

from lapwing.experiments import REGISTRY
from lapwing.sweep import Measure, Resources, Search, Sweep, SweepResult, load_sweep, run_sweep

from .named import choose
from .output import print_json, print_rich, table
from .parse import RUNS, Json, RunsFolder, UsageError, parse

_STATUS = {"finished": 0, "failed": 1, "stopped": 130}

Grid = Annotated[
    tuple[str, ...],
    tyro.conf.arg(
        metavar="OPTION=VALUES",
        help="what to sweep over: model.latents=4..8, task=copy,sort, or to search learning_rate=1e-4..1e-2:log",
    ),
]
Seeds = Annotated[int, tyro.conf.arg(help="how many seeds each combination is run with, from --seed on")]
Kind = Annotated[
    Literal["grid", "random", "halving"],
    tyro.conf.arg(
        help="grid: all combinations; random: --samples of them; halving: all or --samples, in --rungs rounds of "
        "more and more steps, of which the best 1/--eta go on"
    ),
]
Samples = Annotated[int, tyro.conf.arg(help="combinations to draw")]
SearchSeed = Annotated[int, tyro.conf.arg(help="of what is drawn")]
Rungs = Annotated[int, tyro.conf.arg(help="rounds of halving; the last has all --steps")]
Eta = Annotated[int, tyro.conf.arg(help="halving: 1 in so many goes on, for so many times the steps")]
Metric = Annotated[
    str, tyro.conf.arg(help="what points are judged by; the headline of the experiment unless told")
]
Goal = Annotated[float | None, tyro.conf.arg(help="from this value on a point is a success")]
Better = Annotated[
    Literal["", "lower", "higher"], tyro.conf.arg(help="which side of --goal; lower for losses and errors")
]
EngineName = Annotated[
    Literal["local", "ray"], tyro.conf.arg(name="engine", help="processes of this machine, or a Ray cluster")
]
Workers = Annotated[int, tyro.conf.arg(help="processes at once; 0: as many as there are cores, or GPUs")]
Address = Annotated[
    str | None, tyro.conf.arg(help="of the Ray cluster; a new one on this machine unless told")
]
Vectorize = Annotated[bool, tyro.conf.arg(help="train points of one shape together, as a population")]
SweepName = Annotated[
    str, tyro.conf.arg(name="name", help="of the folder; made of what is swept unless told")
]
Quiet = Annotated[bool, tyro.conf.arg(help="print nothing but errors")]


def sweep(words: Sequence[str]) -> int:
    """Runs the sweep described by the words, or goes on with it."""
    if words[:1] == ["--resume"]:
        options = parse(_Resume, words[1:], "lapwing sweep --resume", "Goes on with a sweep.")
        return _run(*load_sweep(options.folder), options.folder, options)
    own = [
        ("grid", Grid, ()),
        ("seeds", Seeds, 1),
        ("search", Kind, "grid"),
        ("samples", Samples, 0),
        ("search_seed", SearchSeed, 0),
        ("rungs", Rungs, 3),
        ("eta", Eta, 3),
        ("metric", Metric, ""),
        ("goal", Goal, None),
        ("better", Better, ""),
        ("engine", EngineName, "local"),
        ("workers", Workers, 0),
        ("address", Address, None),
        ("vectorize", Vectorize, False),
        ("sweep_name", SweepName, ""),
        ("runs_dir", RunsFolder, RUNS),
        ("quiet", Quiet, False),
        ("as_json", Json, False),
    ]
    chosen = choose(REGISTRY, words, "lapwing sweep", own)
    if chosen is None:
        return 0
    name, _, options = chosen
    search = Search(options.search, options.samples, options.search_seed, options.rungs, options.eta)
    wanted = Sweep.of(name, options.config, options.grid, seeds=options.seeds, search=search)
    if options.sweep_name != Path(options.sweep_name).name:
        raise UsageError(
            f"the name of a sweep should be one word without slashes, not {options.sweep_name!r}"
        )
    folder = options.runs_dir / (options.sweep_name or wanted.name)
    measure = Measure(options.metric, options.goal, options.better)
    return _run(wanted, measure, folder, options)


@dataclass
class _Resume:
    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR", help="the folder of a sweep")]
    engine: EngineName = "local"
    workers: Workers = 0
    address: Address = None
    vectorize: Vectorize = False
    quiet: Quiet = False
    as_json: Json = False


def _run(wanted: Sweep, measure: Measure, folder: Path, options: Any) -> int:
    on = Resources(options.engine, options.workers, options.address, options.vectorize)
    quiet = options.quiet or options.as_json
    result = run_sweep(wanted, folder, measure=measure, on=on, quiet=quiet)
    if options.as_json:
        print_json({"ended": result.ended, "folder": result.folder, **result.summary})
    elif not options.quiet:
        _tell(result)
    return _STATUS[result.ended]


def _tell(result: SweepResult) -> None:
    summary, folder = result.summary, os.path.relpath(result.folder)
    print_rich(_table(summary))
    for failure in summary["failed"]:
        print(f"failed: {failure['point']}: {failure['error']}")
    print(f"\n{summary['finished']} of {summary['points']} points finished in {summary['seconds']:.0f} s")
    if summary["best"]:
        print(f"best: {summary['best']}")
    if summary["goal"] is not None:
        side = "at most" if summary["better"] == "lower" else "at least"
        print(f"success: {summary['metric']} {side} {summary['goal']:g}")
    for picture in result.pictures:
        print(f"picture: {os.path.relpath(picture)}")
    if result.ended == "stopped":
        print(f"stopped; the same command goes on with it, or: lapwing sweep --resume {folder}")
    print(f"sweep folder: {folder}")


def _table(summary: dict[str, Any]) -> RenderableType:
    """A line for each combination. A column that would say nothing is left out."""
    rows = summary["rows"]
    axes = list(rows[0]["values"]) if rows else []
    columns: dict[str, Callable[[dict[str, Any]], Any]] = {
        **{axis: lambda row, axis=axis: row["values"][axis] for axis in axes},
        "seeds": lambda row: f"{row['finished']}/{row['seeds']}",
        summary["metric"] or "metric": lambda row: row["mean"],
    }
    if "steps" not in axes and len({row["steps"] for row in rows}) > 1:
        columns["after steps"] = lambda row: row["steps"]
    if summary["seeds"] > 1:
        columns["spread"] = lambda row: row["spread"]
    if summary["goal"] is not None:
        columns["success"] = lambda row: None if row["success"] is None else f"{row['success']:.0%}"
    return table(list(columns), [[cell(row) for cell in columns.values()] for row in rows], list(columns))
