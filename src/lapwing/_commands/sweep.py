"""`lapwing sweep NAME --grid OPTION=VALUES ...`: an experiment over a grid of options, with several seeds."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import RenderableType

from lapwing.experiments import find
from lapwing.sweep import (
    LocalEngine,
    Measure,
    RayEngine,
    Sweep,
    SweepResult,
    load_sweep,
    run_sweep,
    search_of,
)

from .named import choose_experiment
from .output import print_json, print_rich, table
from .parse import RUNS, Flag, Json, RunsFolder, UsageError, parse
from .storing import StoreUrl, check_store, storing

_STATUS = {"finished": 0, "failed": 1, "stopped": 130, "preempted": 143}

Grid = Annotated[
    tuple[str, ...],
    tyro.conf.arg(
        metavar="OPTION=VALUES",
        help="options and values: model.latents=4..8, task=copy,sort, or a range to search, lr=1e-4..1e-2:log",
    ),
]
Seeds = Annotated[int, tyro.conf.arg(help="seeds of each combination, from --seed on")]
Kind = Annotated[
    Literal["grid", "random", "halving", "optuna"],
    tyro.conf.arg(
        help="grid: all combinations; random: --samples of them; halving: all or --samples in --rungs rounds, each "
        "with the best 1/--eta of the one before, for --eta times the steps; optuna: --samples, each near the best of "
        "those before (TPE)"
    ),
]
Samples = Annotated[int, tyro.conf.arg(help="number of combinations to draw")]
SearchSeed = Annotated[int, tyro.conf.arg(help="seed of the draws")]
Rungs = Annotated[int, tyro.conf.arg(help="halving: number of rounds; the last has all --steps")]
Eta = Annotated[
    int,
    tyro.conf.arg(help="halving: factor between rounds: fewer combinations, more steps"),
]
Pruner = Annotated[
    Literal["median", "halving", "none"],
    tyro.conf.arg(
        help="optuna: stop a point early if it is worse than the median of the others at the same step, or not in "
        "their best third; or never"
    ),
]
Metric = Annotated[
    str, tyro.conf.arg(help="metric to compare points by; default: exact match, robustness, accuracy or loss")
]
Goal = Annotated[float | None, tyro.conf.arg(help="value of the metric that counts as a success")]
Better = Annotated[
    Literal["", "lower", "higher"],
    tyro.conf.arg(help="direction of the metric; default: lower for losses and errors"),
]
EngineName = Annotated[
    Literal["local", "ray"], tyro.conf.arg(name="engine", help="processes on this machine, or a Ray cluster")
]
Workers = Annotated[
    int | None,
    tyro.conf.arg(metavar="N", help="local: number of processes; default: one for each core, or GPU"),
]
Address = Annotated[
    str | None, tyro.conf.arg(help="ray: address of the cluster; default: start one on this machine")
]
Vectorize = Annotated[Flag, tyro.conf.arg(help="train points of the same shape as a population")]
AllowChange = Annotated[
    Flag, tyro.conf.arg(help="continue although the file of the experiment has changed since the sweep began")
]
SweepName = Annotated[str, tyro.conf.arg(name="name", help="name of the folder; default: made from the axes")]
Quiet = Annotated[Flag, tyro.conf.arg(help="print nothing but errors")]


def sweep(words: Sequence[str]) -> int:
    """Runs or continues the sweep described by the words."""
    if words[:1] == ["--resume"]:
        options = parse(_Resume, words[1:], "lapwing sweep --resume", "Continues a sweep.")
        return _run(*load_sweep(options.folder), options.folder, options)
    own = [
        ("grid", Grid, ()),
        ("seeds", Seeds, 1),
        ("search", Kind, "grid"),
        ("samples", Samples, 0),
        ("search_seed", SearchSeed, 0),
        ("rungs", Rungs, 3),
        ("eta", Eta, 3),
        ("pruner", Pruner, "median"),
        ("metric", Metric, ""),
        ("goal", Goal, None),
        ("better", Better, ""),
        ("engine", EngineName, "local"),
        ("workers", Workers, None),
        ("address", Address, None),
        ("vectorize", Vectorize, False),
        ("allow_change", AllowChange, False),
        ("sweep_name", SweepName, ""),
        ("runs_dir", RunsFolder, RUNS),
        ("store", StoreUrl, None),
        ("quiet", Quiet, False),
        ("as_json", Json, False),
    ]
    chosen = choose_experiment(_with_first_values(words), "lapwing sweep", own)
    if chosen is None:
        return 0
    experiment, options = chosen
    search = search_of(
        options.search,
        samples=options.samples,
        seed=options.search_seed,
        rungs=options.rungs,
        eta=options.eta,
        pruner=options.pruner,
    )
    wanted = Sweep.of(experiment.target, options.config, options.grid, seeds=options.seeds, search=search)
    if options.sweep_name != Path(options.sweep_name).name:
        raise UsageError(
            f"the name of a sweep should be one word without slashes, not {options.sweep_name!r}"
        )
    folder = options.runs_dir / (options.sweep_name or wanted.name)
    measure = Measure(options.metric, options.goal, options.better)
    return _run(wanted, measure, folder, options)


def _with_first_values(words: Sequence[str]) -> list[str]:
    """An option without a default need not be given if it is swept over: it gets its first value."""
    if not words or words[0].startswith("-"):
        return list(words)
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    swept = dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("-"))
    added = []
    for each in fields(find(words[0]).Config):
        flag = f"--{each.name.replace('_', '-')}"
        is_needed = each.default is MISSING and each.default_factory is MISSING and flag not in given
        if is_needed and each.name in swept:
            added += [flag, re.split(r",|\.\.", swept[each.name])[0]]
    return [*words, *added]


@dataclass
class _Resume:
    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR", help="the folder of a sweep")]
    engine: EngineName = "local"
    workers: Workers = None
    address: Address = None
    vectorize: Vectorize = False
    allow_change: AllowChange = False
    store: StoreUrl = None
    quiet: Quiet = False
    as_json: Json = False


def _run(wanted: Sweep, measure: Measure, folder: Path, options: Any) -> int:
    engine = RayEngine(options.address) if options.engine == "ray" else LocalEngine(options.workers)
    quiet = options.quiet or options.as_json
    runs_dir = getattr(options, "runs_dir", folder.parent)
    check_store(options.store)
    with storing(folder, options.store, runs_dir):
        result = run_sweep(
            wanted,
            folder,
            measure=measure,
            engine=engine,
            vectorize=options.vectorize,
            allow_change=options.allow_change,
            quiet=quiet,
        )
    if options.as_json:
        print_json({"ended": result.ended, "folder": result.folder, **result.summary})
    elif not options.quiet:
        _print_result(result)
    return _STATUS[result.ended]


def _print_result(result: SweepResult) -> None:
    summary, folder = result.summary, os.path.relpath(result.folder)
    print_rich(_table(summary))
    for failure in summary["failed"]:
        print(f"failed: {failure['point']}: {failure['error']}")
    pruned = f", {len(summary['pruned'])} pruned," if summary["pruned"] else ""
    print(
        f"\n{summary['finished']} of {summary['points']} points finished{pruned} in {summary['seconds']:.0f} s"
    )
    if summary["best"]:
        print(f"best: {summary['best']}")
    if summary["goal"] is not None:
        side = "at most" if summary["better"] == "lower" else "at least"
        print(f"success: {summary['metric']} {side} {summary['goal']:g}")
    for picture in result.pictures:
        print(f"picture: {os.path.relpath(picture)}")
    if result.ended in ("stopped", "preempted"):
        print(f"{result.ended}; continue with the same command or: lapwing sweep --resume {folder}")
    print(f"sweep folder: {folder}")


def _table(summary: dict[str, Any]) -> RenderableType:
    """A line for each combination, without columns that would be the same everywhere."""
    rows = summary["rows"]
    axes = list(rows[0]["values"]) if rows else []
    columns: dict[str, Callable[[dict[str, Any]], Any]] = {
        **{axis: lambda row, axis=axis: row["values"][axis] for axis in axes},
        "seeds": lambda row: f"{row['finished']}/{row['seeds']}",
        summary["metric"] or "metric": lambda row: row["mean"],
    }
    if "steps" not in axes and len({row["steps"] for row in rows}) > 1:
        columns["after steps"] = lambda row: row["steps"]
    if summary["pruned"]:
        columns["pruned"] = lambda row: "pruned" if row["pruned"] else ""
    if summary["seeds"] > 1:
        columns["spread"] = lambda row: row["spread"]
    if summary["goal"] is not None:
        columns["success"] = lambda row: None if row["success"] is None else f"{row['success']:.0%}"
    return table(list(columns), [[cell(row) for cell in columns.values()] for row in rows], list(columns))
