"""What a worker does, whichever engine it belongs to: a run like any other, made or gone on with.

All that is known about a point is in its run folder. So a job can be handed to anybody who sees the folder, again after
its worker was killed, and it goes on from the newest checkpoint that is there.
"""

import contextlib
import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lapwing.journal import JournalError, Run, RunWriter, from_json, to_json

from ._points import Point

Ended = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True)
class Job:
    """Points that are trained together: one, or those of a population. `deaths` counts the workers that died of it."""

    experiment: str
    folder: str
    points: tuple[Point, ...]
    deaths: int = 0

    def to_json(self) -> dict[str, Any]:
        points = [{"name": point.name, "settings": point.settings} for point in self.points]
        told = {"experiment": self.experiment, "folder": self.folder, "points": points}
        return {**told, "take_over": self.deaths > 0}


class Outcome(NamedTuple):
    """What became of a point, and a line about it."""

    point: str
    ended: Ended
    said: str


def train(job: dict[str, Any]) -> list[Outcome]:
    """Trains the points of a job, given as plain data."""
    names = [point["name"] for point in job["points"]]
    folder, points = Path(job["folder"]), job["points"]
    try:
        if job["take_over"]:
            _take_over(folder, names)
            points = [point for point in points if not _has_finished(folder, point)]
        ended = _train(job["experiment"], folder, points) if points else {}
    except KeyboardInterrupt:
        return [Outcome(name, "stopped", "before it had begun") for name in names]
    except Exception as error:
        return [Outcome(name, "failed", _one_line(error)) for name in names]
    finally:
        _forget()
    return [Outcome(name, *ended.get(name, ("finished", "before its worker died"))) for name in names]


def _forget() -> None:
    """What was compiled for a job is of no use to the next one, and hundreds of jobs would fill the memory."""
    import jax

    jax.clear_caches()
    gc.collect()


def _one_line(error: BaseException) -> str:
    """An error as a line of a table; those of Lapwing are sentences already."""
    words = " ".join(str(error).split())
    ours = type(error).__module__.partition(".")[0] == "lapwing"
    return words if ours else f"{type(error).__name__}: {words}".removesuffix(": ")


def _train(experiment: str, folder: Path, points: Sequence[dict[str, Any]]) -> dict[str, tuple[Ended, str]]:
    """By name, how each point has ended. One that cannot begin does not keep the others of its population from it."""
    from lapwing.experiments import REGISTRY
    from lapwing.train import config_from, fit, fit_many

    module = REGISTRY.load(experiment)
    ended: dict[str, tuple[Ended, str]] = {}
    configs: list[Any] = []
    runs: list[RunWriter] = []
    with contextlib.ExitStack() as opened:
        for point in points:
            try:
                config = config_from(module.Config, point["settings"])
                run = opened.enter_context(_open(experiment, config, folder, point["name"]))
            except Exception as error:
                ended[point["name"]] = "failed", _one_line(error)
            else:
                configs.append(config)
                runs.append(run)
        results = []
        if len(runs) == 1:
            results = [fit(module.build(configs[0]), configs[0], runs[0], quiet=True, allow_change=True)]
        elif runs:
            results = fit_many(module.build, configs, runs, quiet=True, allow_change=True)
    for run, result in zip(runs, results, strict=True):
        ended[run.name] = result.ended, result.outcome
    return ended


def _open(experiment: str, config: Any, folder: Path, name: str) -> RunWriter:
    from lapwing.train import device_name

    if not (folder / name).exists():
        return Run.create(experiment, config, runs_dir=folder, device=device_name(), name=name)
    run = Run.reopen(folder / name, device=device_name())
    if run.config != from_json(to_json(config)):  # In a search by halving, it has more steps than before.
        run.reconfigure(config)
    return run


def _take_over(folder: Path, names: Sequence[str]) -> None:
    """The worker that had these points is known to be dead. A lock of a dead process is free on its own machine; of
    another machine nobody could tell, so a run would not be touched that was written there."""
    for name in names:
        (folder / name / "lock").unlink(missing_ok=True)


def _has_finished(folder: Path, point: dict[str, Any]) -> bool:
    """Whether one of a population had come to its end already."""
    try:
        run = Run.open(folder / point["name"])
    except JournalError:
        return False
    return run.state == "finished" and run.config == point["settings"]
