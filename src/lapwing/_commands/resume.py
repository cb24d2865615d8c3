"""`lapwing resume RUN`: continues a paused run, or one that has ended, from its newest checkpoint.

Everything that can be refused is refused before the run is opened for writing, so that a refusal leaves it as it was.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

import tyro

from lapwing.experiments import Experiment, ExperimentError, changed_source, find, keep_source, read_source
from lapwing.journal import Run, RunWriter, find_run

from .devices import Devices
from .output import print_lines
from .parse import RUNS, Flag, RunName, RunsFolder, UsageError, parse, parse_known
from .steer import WAIT_S, ask
from .storing import StoreUrl, check_store, storing
from .train import AsJson, Quiet, check_quickly, train_task

AllowChange = Annotated[
    Flag, tyro.conf.arg(help="resume although options, or the file, differ from those of the checkpoint")
]
SourceFile = Annotated[
    str | None,
    tyro.conf.arg(
        name="source",
        metavar="FILE",
        help="the file of the experiment, if it is not where it was; may be the copy in the run folder",
    ),
]


@dataclass
class _Resume:
    run: RunName
    runs_dir: RunsFolder = RUNS
    allow_change: AllowChange = False
    source: SourceFile = None
    quiet: Quiet = False
    as_json: AsJson = False
    store: StoreUrl = None
    machine: Annotated[Devices, tyro.conf.arg(name="")] = field(default_factory=Devices)


def resume(words: Sequence[str]) -> int:
    """Continues a run that is paused, was stopped, preempted or killed, or has failed, from its newest checkpoint."""
    options, rest = parse_known(_Resume, words, "lapwing resume", resume.__doc__)
    old = Run.open(find_run(options.run, options.runs_dir))
    if old.state == "paused":
        if rest:
            raise UsageError(f"{old.name} is paused and resumes as it is, without {' '.join(rest)}")
        return ask(old, "resume", {}, WAIT_S, options.as_json)
    experiment, has_changed = _experiment(old, options)
    options.machine.join()
    from lapwing.train import config_from, is_first

    settings = _known_settings(experiment, old.config) if options.allow_change else old.config
    before = config_from(experiment.Config, settings)
    config = parse(experiment.Config, rest, f"lapwing resume {options.run}", default=before)
    task = experiment.build(config)
    if has_changed:
        check_quickly(task, config, quiet=options.quiet or options.as_json)
    check_store(options.store, old.folder, options.runs_dir)
    opened = Run.reopen(old.folder, device=options.machine.name) if is_first() else nullcontext()
    with storing(opened, options.store, options.runs_dir), opened as run:
        if run and options.allow_change:
            run.when_begun(lambda: _record_changes(run, experiment, config))
        return train_task(task, config, run, options, allow_change=options.allow_change)


def _experiment(run: Run, options: _Resume) -> tuple[Experiment, bool]:
    """The experiment of a run, and whether its file is another one than when the run was trained."""
    target, source = read_source(run, options.source)
    changes = changed_source(run, source)
    if changes and not options.allow_change:
        print_lines(changes, to="stderr")
        raise ExperimentError(
            f"{source.path if source else target} is not the file that {run.name} was trained from; to resume with it, "
            "give --allow-change; to train on with the copy in the run, --source "
            f"{run.folder / str((run.source or {}).get('copy'))}"
        )
    return find(target, source), bool(changes)


def _known_settings(experiment: Experiment, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run that its file still has."""
    names = {each.name for each in fields(experiment.Config)}
    return {name: value for name, value in settings.items() if name in names}


def _record_changes(run: RunWriter, experiment: Experiment, config: Any) -> None:
    from lapwing.journal import from_json, to_json

    keep_source(run, experiment)
    if run.config != from_json(to_json(config)):
        run.reconfigure(config)
