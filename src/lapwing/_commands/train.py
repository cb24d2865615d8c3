"""`lapwing list`, `lapwing train NAME` and `lapwing resume RUN`. Each experiment has its own options."""

import dataclasses
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from lapwing.core import LapwingError
from lapwing.experiments import REGISTRY
from lapwing.journal import Run, RunWriter, find_run

from .devices import Devices, leaving_without_the_lost
from .named import choose
from .output import print_json, print_rich, table
from .parse import RUNS, Json, RunName, RunsFolder, UsageError, parse, parse_known
from .steer import WAIT_S, ask

if TYPE_CHECKING:
    from lapwing.task import Task
    from lapwing.train import FitResult

_STATUS = {"finished": 0, "failed": 1, "stopped": 130}
_DRY_STEPS = 2

Name = Annotated[
    str | None,
    tyro.conf.arg(metavar="NAME", help="name of the run; default: time, experiment and four letters"),
]
Quiet = Annotated[bool, tyro.conf.arg(help="print only errors")]
AsJson = Annotated[bool, tyro.conf.arg(name="json", help="print only the outcome, as JSON")]
DryRun = Annotated[bool, tyro.conf.arg(help="make two steps and keep nothing")]
NoCheck = Annotated[bool, tyro.conf.arg(help="skip the checks before the first step")]
AllowChange = Annotated[
    bool, tyro.conf.arg(help="resume although options differ from those of the checkpoint")
]


class MistakeError(LapwingError, ValueError):
    """What a check found before the training."""


def list_experiments(*, as_json: Json = False) -> None:
    """Lists the experiments that `lapwing train NAME` can train."""
    if as_json:
        print_json(REGISTRY.about())
    else:
        print_rich(table(["experiment", "what it is"], REGISTRY.about().items()))


def train(words: Sequence[str]) -> int:
    """Trains the experiment named by the first word."""
    own = [
        ("runs_dir", RunsFolder, RUNS),
        ("name", Name, None),
        ("quiet", Quiet, False),
        ("as_json", AsJson, False),
        ("dry_run", DryRun, False),
        ("no_check", NoCheck, False),
        ("machine", Annotated[Devices, tyro.conf.arg(name="")], field(default_factory=Devices)),
    ]
    chosen = choose(REGISTRY, words, "lapwing train", own)
    if chosen is None:
        return 0
    name, experiment, options = chosen
    options.machine.join()
    task = experiment.build(options.config)
    if not options.no_check:
        _check(task, options)
    if options.dry_run:
        return _try(name, task, options)
    with _new_run(name, options.config, options.runs_dir, options.machine, options.name) as run:
        return _fit(task, options.config, run, options)


def _check(task: "Task", options: Any) -> None:
    """Runs the cheap checks. An error stops the training before a run folder is made."""
    from lapwing.check import CheckError, quick
    from lapwing.train import is_first

    try:
        outcomes = quick(task, options.config)
    except CheckError as error:
        raise MistakeError(f"{error} `--no-check` skips the checks.") from None
    if is_first() and not (options.quiet or options.as_json):
        passed = [outcome.check for outcome in outcomes if outcome.result == "passed"]
        print(f"checked: {', '.join(passed)} ({sum(outcome.seconds for outcome in outcomes):.1f} s)")


def _try(name: str, task: "Task", options: Any) -> int:
    """A real run, but short, and in a folder that is deleted."""
    config = dataclasses.replace(options.config, steps=_DRY_STEPS)
    with (
        tempfile.TemporaryDirectory() as folder,
        _new_run(name, config, Path(folder), options.machine) as run,
    ):
        status = _fit(task, config, run, options)
    if not (options.quiet or options.as_json):
        print("That was a dry run: nothing is kept.")
    return status


@dataclass
class _Resume:
    run: RunName
    runs_dir: RunsFolder = RUNS
    allow_change: AllowChange = False
    quiet: Quiet = False
    as_json: AsJson = False
    machine: Annotated[Devices, tyro.conf.arg(name="")] = field(default_factory=Devices)


def resume(words: Sequence[str]) -> int:
    """Continues a paused run, or a run that was stopped, killed or has failed, from its newest checkpoint."""
    options, rest = parse_known(_Resume, words, "lapwing resume", resume.__doc__)
    old = Run.open(find_run(options.run, options.runs_dir))
    if old.state == "paused":
        if rest:
            raise UsageError(f"{old.name} is paused and resumes as it is, without {' '.join(rest)}")
        return ask(old, "resume", {}, WAIT_S, options.as_json)
    options.machine.join()
    experiment = REGISTRY.load(old.experiment)
    from lapwing.train import config_from, is_first

    before = config_from(experiment.Config, old.config)
    config = parse(experiment.Config, rest, f"lapwing resume {options.run}", default=before)
    task = experiment.build(config)
    with Run.reopen(old.folder, device=options.machine.name) if is_first() else nullcontext() as run:
        if run and options.allow_change and config != before:
            run.reconfigure(config)
        return _fit(task, config, run, options, allow_change=options.allow_change)


def _new_run(
    experiment: str, config: Any, runs_dir: Path, machine: Devices, name: str | None = None
) -> AbstractContextManager[RunWriter | None]:
    from lapwing.train import is_first

    # `fit` ends the run; a `with` around it is for an interrupt before it has begun.
    if not is_first():
        return nullcontext()
    return Run.create(experiment, config, runs_dir=runs_dir, device=machine.name, name=name)


def _fit(
    task: "Task", config: Any, run: RunWriter | None, options: Any, *, allow_change: bool = False
) -> int:
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
