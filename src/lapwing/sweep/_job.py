"""What a worker does, whichever engine it belongs to: creates or continues the runs of a job."""

import contextlib
import gc
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lapwing.core import LapwingError
from lapwing.journal import JournalError, Run, RunWriter, from_json, to_json

if TYPE_CHECKING:
    from lapwing.experiments import Experiment

Ended = Literal["finished", "stopped", "failed"]
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """Points to train together, as plain data: the settings of one run, or of a population, by the name of its folder.
    `deaths` counts the workers that died with this job; `source` is the file of the experiment, if it is one, which the
    worker may not have, or not as it was when the sweep began."""

    experiment: str
    folder: str
    points: Mapping[str, Settings]
    deaths: int = 0
    source: Mapping[str, str] | None = None


class Outcome(NamedTuple):
    """How a point ended, and a line about it."""

    point: str
    ended: Ended
    message: str


def run_job(job: Job) -> list[Outcome]:
    """Trains the points of a job in this process."""
    folder, points = Path(job.folder), job.points
    try:
        if job.deaths:
            _take_over(folder, points)
            points = {
                name: settings
                for name, settings in points.items()
                if not _has_finished(folder / name, settings)
            }
        ended = _train(_experiment(job), folder, points) if points else {}
    except KeyboardInterrupt:
        return [Outcome(name, "stopped", "before it started") for name in job.points]
    except Exception as error:
        if not isinstance(
            error, LapwingError
        ):  # It may be in the user's file: the line is in the worker's log.
            traceback.print_exc()
        return [Outcome(name, "failed", _one_line(error)) for name in job.points]
    finally:
        _free_memory()
    return [Outcome(name, *ended.get(name, ("finished", "before its worker died"))) for name in job.points]


def _free_memory() -> None:
    """The next job needs none of this job's programs, and those of hundreds of jobs would fill the memory."""
    import jax

    jax.clear_caches()
    gc.collect()


def _one_line(error: BaseException) -> str:
    """An error as a line of a table; those of Lapwing are sentences already."""
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
    run = Run.reopen(folder / name, device=device_name())
    run.when_begun(lambda: keep_source(run, experiment))
    if run.config != from_json(to_json(config)):  # A later round of a search has more steps.
        run.when_begun(lambda: run.reconfigure(config))
    return run


def _take_over(folder: Path, names: Sequence[str] | Mapping[str, Any]) -> None:
    """Removes the locks of a worker that is known to be dead. The lock of a dead process is free on its own machine,
    but one from another machine would be respected."""
    for name in names:
        (folder / name / "lock").unlink(missing_ok=True)


def _has_finished(folder: Path, settings: Settings) -> bool:
    """Whether one of a population had already finished."""
    try:
        run = Run.open(folder)
    except JournalError:
        return False
    return run.state == "finished" and run.config == settings
