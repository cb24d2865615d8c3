"""`lapwing list` and `lapwing train NAME`, where NAME is an experiment or a file. Each has its own options."""

import dataclasses
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from lapwing.core import LapwingError
from lapwing.experiments import Experiment, keep_source, known
from lapwing.journal import Run, RunWriter, check_name

from .devices import Devices, leaving_without_the_lost
from .named import choose_experiment
from .output import print_json, print_rich, table
from .parse import RUNS, Flag, Json, RunsFolder
from .storing import StoreUrl, check_store, storing

if TYPE_CHECKING:
    from lapwing.task import Task
    from lapwing.train import FitResult

_STATUS = {"finished": 0, "failed": 1, "stopped": 130, "preempted": 143}
_DRY_STEPS = 2

Name = Annotated[
    str | None,
    tyro.conf.arg(metavar="NAME", help="name of the run; default: time, experiment and four letters"),
]
Quiet = Annotated[Flag, tyro.conf.arg(help="print only errors")]
AsJson = Annotated[Flag, tyro.conf.arg(name="json", help="print only the outcome, as JSON")]
DryRun = Annotated[Flag, tyro.conf.arg(help="make two steps and keep nothing")]
NoCheck = Annotated[Flag, tyro.conf.arg(help="skip the checks before the first step")]


class MistakeError(LapwingError, ValueError):
    """What a check found before the training."""


def list_experiments(*, as_json: Json = False) -> None:
    """Lists the experiments that `lapwing train NAME` can train; `lapwing train FILE.py` trains your own."""
    names = known()
    if as_json:
        added = {name: f"{each.about} (from {each.package})" for name, each in names.items() if each.package}
        print_json({**{name: each.about for name, each in names.items()}, **added})
        return
    header = ["experiment", "what it is"]
    if any(each.package for each in names.values()):
        header.append("package")
    rows = [[name, each.about, each.package][: len(header)] for name, each in names.items()]
    print_rich(table(header, rows))


def train(words: Sequence[str]) -> int:
    """Trains the experiment, or the file, named by the first word."""
    own = [
        ("runs_dir", RunsFolder, RUNS),
        ("name", Name, None),
        ("quiet", Quiet, False),
        ("as_json", AsJson, False),
        ("dry_run", DryRun, False),
        ("no_check", NoCheck, False),
        ("store", StoreUrl, None),
        ("machine", Annotated[Devices, tyro.conf.arg(name="")], field(default_factory=Devices)),
    ]
    chosen = choose_experiment(words, "lapwing train", own)
    if chosen is None:
        return 0
    experiment, options = chosen
    options.machine.join()
    _check_name(options)
    check_store(options.store, options.runs_dir / options.name if options.name else None, options.runs_dir)
    task = experiment.build(options.config)
    if not options.no_check:
        check_quickly(task, options.config, quiet=options.quiet or options.as_json)
    if options.dry_run:
        return _try(experiment, task, options)
    opened = _new_run(experiment, options.config, options.runs_dir, options.machine, options.name)
    with storing(opened, options.store, options.runs_dir), opened as run:
        return train_task(task, options.config, run, options)


def _check_name(options: Any) -> None:
    """Refuses a name before anything is built and checked."""
    from lapwing.train import is_first

    if options.name is not None and is_first():
        check_name(options.name, options.runs_dir)


def check_quickly(task: "Task", config: Any, *, quiet: bool) -> None:
    """Runs the cheap checks. An error stops the training before anything is written."""
    from lapwing.check import CheckError, quick
    from lapwing.train import is_first

    try:
        outcomes = quick(task, config)
    except CheckError as error:
        raise MistakeError(f"{error} `--no-check` skips the checks.") from None
    if is_first() and not quiet:
        passed = [outcome.check for outcome in outcomes if outcome.result == "passed"]
        print(f"checked: {', '.join(passed)} ({sum(outcome.seconds for outcome in outcomes):.1f} s)")


def _try(experiment: Experiment, task: "Task", options: Any) -> int:
    """A real run, but short, and in a folder that is deleted."""
    config = dataclasses.replace(options.config, steps=_DRY_STEPS)
    with (
        tempfile.TemporaryDirectory() as folder,
        _new_run(experiment, config, Path(folder), options.machine) as run,
    ):
        status = train_task(task, config, run, options)
    if not (options.quiet or options.as_json):
        print("That was a dry run: nothing is kept.")
    return status


def _new_run(
    experiment: Experiment, config: Any, runs_dir: Path, machine: Devices, name: str | None = None
) -> AbstractContextManager[RunWriter | None]:
    from lapwing.train import is_first

    if not is_first():
        return nullcontext()
    # `fit` ends the run; a `with` around it is for an interrupt before it has begun.
    run = Run.create(experiment.name, config, runs_dir=runs_dir, device=machine.name, name=name)
    keep_source(run, experiment)
    return run


def train_task(
    task: "Task", config: Any, run: RunWriter | None, options: Any, *, allow_change: bool = False
) -> int:
    """Trains, prints the outcome and returns the exit status."""
    from lapwing.train import fit

    quiet = options.quiet or options.as_json
    with leaving_without_the_lost():
        result = fit(
            task, config, run, devices=options.machine.devices, quiet=quiet, allow_change=allow_change
        )
    if options.as_json and run:
        print_json(_outcome(result, run))
    return _STATUS[result.ended]


def _outcome(result: "FitResult", run: RunWriter) -> dict[str, Any]:
    return {
        "run": run.name,
        "folder": run.folder,
        "ended": result.ended,
        "outcome": result.outcome,
        "steps": int(result.state.step),
        "seconds": result.seconds,
        "seconds_per_step": result.times.seconds_per_step,
        "compiling_seconds": result.times.compiling_seconds,
        "rollbacks": result.rollbacks,
        "skipped": result.skipped,
        "last": {name: values[-1] for name, values in result.metrics.items() if len(values)},
        "evaluation": result.evaluation,
    }
