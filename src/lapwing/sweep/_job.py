"""What a worker does, whichever engine it belongs to: creates or continues the runs of a job."""

import contextlib
import gc
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lapwing.core import LapwingError, Preempted
from lapwing.journal import JournalError, LockedError, Run, RunWriter, from_json, to_json

from ._memory import shortage_of

if TYPE_CHECKING:
    from lapwing.experiments import Experiment

Ended = Literal["finished", "stopped", "preempted", "failed"]
Settings = Mapping[str, Any]

STOP = "stop\n"
"""What a sweep writes to a worker instead of a job: the training in progress should end as stopped."""

_LAST_CHECKPOINT_S = 30.0


@dataclass(frozen=True)
class Job:
    """Points to train together, as plain data: the settings of one run, or of a population, by the name of its folder.
    `attempts` counts the times it was started before, `deaths` the workers that died with it; `source` is the file of
    the experiment, if it is one, which the worker may not have, or not as it was when the sweep began."""

    experiment: str
    folder: str
    points: Mapping[str, Settings]
    attempts: int = 0
    deaths: int = 0
    source: Mapping[str, str] | None = None


class Outcome(NamedTuple):
    """How a point ended, and a line about it.

    >>> outcomes = [Outcome("width=8", "finished", ""), Outcome("width=9", "failed", "out of memory")]
    >>> [f"{each.point}: {each.message}" for each in outcomes if each.ended == "failed"]
    ['width=9: out of memory']
    """

    point: str
    ended: Ended
    message: str


def run_job(job: Job) -> list[Outcome]:
    """Trains the points of a job in this process.

    >>> run_job(Job("addin", "runs/widths", {"width=8": {"width": 8}}))
    [Outcome(point='width=8', ended='failed', message="'addin' is not an experiment; did you mean adding?")]
    """
    folder, points, ended, has_begun = Path(job.folder), job.points, {}, False
    try:
        if job.attempts:
            points = {
                name: settings
                for name, settings in points.items()
                if not _has_finished(folder / name, settings)
            }
        if points:
            experiment, has_begun = _experiment(job), True
            ended = _train(experiment, folder, points)
    except KeyboardInterrupt as interrupt:
        ended_by = "preempted" if isinstance(interrupt, Preempted) else "stopped"
        return [Outcome(name, ended_by, "before it started") for name in job.points]
    except Exception as error:
        # It may be in the user's file: the line is in the worker's log.
        if not isinstance(error, LapwingError):
            traceback.print_exc()
        return [Outcome(name, "failed", _one_line(error)) for name in job.points]
    finally:
        if has_begun:
            _free_memory()
    return [Outcome(name, *ended.get(name, ("finished", "before its worker ended"))) for name in job.points]


def _free_memory() -> None:
    """The next job needs none of this job's programs, and those of hundreds of jobs would fill the memory."""
    import jax

    jax.clear_caches()
    gc.collect()


def _one_line(error: BaseException) -> str:
    """An error as a line of a table; those of Lapwing are sentences already."""
    if shortage := shortage_of(error):
        return shortage
    words = " ".join(str(error).split())
    ours = isinstance(error, LapwingError)
    return words if ours else f"{type(error).__name__}: {words}".removesuffix(": ")


def _experiment(job: Job) -> "Experiment":
    from lapwing.experiments import Source, find

    return find(job.experiment, Source.from_json(job.source) if job.source else None)


def _train(
    experiment: "Experiment", folder: Path, points: Mapping[str, Settings]
) -> dict[str, tuple[Ended, str]]:
    """How each point ended, by name. One that cannot start does not stop the others of its population."""
    from lapwing.train import config_from, fit, fit_many

    ended: dict[str, tuple[Ended, str]] = {}
    configs: list[Any] = []
    runs: list[RunWriter] = []
    with contextlib.ExitStack() as opened:
        for name, settings in points.items():
            try:
                config = config_from(experiment.Config, settings)
                run = opened.enter_context(_open(experiment, config, folder, name))
            except Exception as error:
                ended[name] = "failed", _one_line(error)
            else:
                configs.append(config)
                runs.append(run)
        results = []
        if len(runs) == 1:
            results = [fit(experiment.build(configs[0]), configs[0], runs[0], quiet=True, allow_change=True)]
        elif runs:
            results = fit_many(experiment.build, configs, runs, quiet=True, allow_change=True)
    for run, result in zip(runs, results, strict=True):
        ended[run.name] = result.ended, result.outcome
    return ended


def _open(experiment: "Experiment", config: Any, folder: Path, name: str) -> RunWriter:
    from lapwing.experiments import keep_source
    from lapwing.train import device_name

    if not (folder / name).exists():
        run = Run.create(experiment.name, config, runs_dir=folder, device=device_name(), name=name)
        keep_source(run, experiment)
        return run
    run = _reopen(folder / name, device_name())
    run.when_begun(lambda: keep_source(run, experiment))
    if run.config != from_json(to_json(config)):  # A later round of a search has more steps.
        run.when_begun(lambda: run.reconfigure(config))
    return run


def _reopen(folder: Path, device: str) -> RunWriter:
    """Opens a run again. The worker of a sweep that was killed may still be writing its last checkpoint."""
    deadline = time.monotonic() + _LAST_CHECKPOINT_S
    while True:
        try:
            return Run.reopen(folder, device=device)
        except LockedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _has_finished(folder: Path, settings: Settings) -> bool:
    """Whether one of a population had already finished."""
    try:
        run = Run.open(folder)
    except JournalError:
        return False
    return run.state == "finished" and run.config == settings
