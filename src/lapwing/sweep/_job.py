"""What a worker does, whichever engine it belongs to: a run like any other, made or gone on with.

All that is known about a point is in its run folder. So a job can be handed to anybody who sees the folder, again after
its worker was killed, and it goes on from the newest checkpoint that is there.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lapwing.journal import Run, RunWriter, from_json, to_json

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
    try:
        if job["take_over"]:
            _take_over(Path(job["folder"]), names)
        endings = _train(job["experiment"], Path(job["folder"]), job["points"])
    except KeyboardInterrupt:
        return [Outcome(name, "stopped", "before it had begun") for name in names]
    except Exception as error:
        return [Outcome(name, "failed", _one_line(error)) for name in names]
    return [Outcome(name, *ending) for name, ending in zip(names, endings, strict=True)]


def _one_line(error: BaseException) -> str:
    """An error as a line of a table; those of Lapwing are sentences already."""
    words = " ".join(str(error).split())
    ours = type(error).__module__.partition(".")[0] == "lapwing"
    return words if ours else f"{type(error).__name__}: {words}".removesuffix(": ")


def _train(experiment: str, folder: Path, points: Sequence[dict[str, Any]]) -> list[tuple[Ended, str]]:
    from lapwing.experiments import REGISTRY
    from lapwing.train import config_from, fit

    module = REGISTRY.load(experiment)
    configs = [config_from(module.Config, point["settings"]) for point in points]
    with contextlib.ExitStack() as stack:
        runs = [
            stack.enter_context(_open(experiment, config, folder, point["name"]))
            for point, config in zip(points, configs, strict=True)
        ]
        if len(runs) == 1:
            results = [fit(module.build(configs[0]), configs[0], runs[0], quiet=True, allow_change=True)]
        else:
            from lapwing.train import fit_many

            results = fit_many(module.build, configs, runs, quiet=True, allow_change=True)
    return [(result.ended, result.outcome) for result in results]


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
