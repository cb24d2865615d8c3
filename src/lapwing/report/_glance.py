"""A run at a glance: its most important numbers, and its environment as rows."""

import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np

from lapwing.journal import Run, flat


@dataclass(frozen=True)
class Glance:
    """The most important numbers of a run; None for what was never logged.

    >>> import tempfile
    >>> from lapwing.report import glance
    >>> with Run.create("demo", runs_dir=tempfile.mkdtemp()) as run:
    ...     run.log({"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25})
    >>> found = glance(run)
    >>> found.step, found.loss, found.rollbacks
    (2, 0.25, 0)
    """

    step: int | None
    loss: float | None
    best: float | None
    best_step: int | None
    steps_per_second: float | None
    seconds: float
    """From the start to the last event or metric, pauses included."""
    rollbacks: int
    restarts: int
    skipped: int
    """Updates that were skipped because they were not finite."""


def glance(run: Run) -> Glance:
    """Summarizes the metrics of a run.

    >>> import tempfile
    >>> with Run.create("demo", runs_dir=tempfile.mkdtemp()) as run:
    ...     run.log(*({"step": step, "loss": (step - 3) ** 2, "time": step / 10} for step in range(6)))
    >>> found = glance(run)
    >>> found.step, found.loss, found.best, found.best_step, found.steps_per_second
    (5, 4.0, 0.0, 3, 10.0)
    """
    columns = run.columns()
    steps = columns.get("step", np.zeros(0))
    loss, best, best_step = _loss(run) if {"loss", "step"} <= columns.keys() else (None, None, None)
    words = [event.get("event") for event in run.events()]
    return Glance(
        step=int(steps[-1]) if np.isfinite(steps[-1:]).any() else None,
        loss=loss,
        best=best,
        best_step=best_step,
        steps_per_second=median_speed(steps, columns.get("time", np.zeros(0))),
        seconds=_duration(run, columns),
        rollbacks=words.count("rollback"),
        restarts=words.count("restarted"),
        skipped=int(np.nansum(columns.get("skipped", np.zeros(0)))),
    )


def _loss(run: Run) -> tuple[float | None, float | None, int | None]:
    steps, losses = run.curve("loss")
    finite = np.isfinite(losses)
    if not finite.any():
        return (float(losses[-1]) if len(losses) else None), None, None
    at = int(np.where(finite, losses, np.inf).argmin())
    return float(losses[-1]), float(losses[at]), int(steps[at])


def median_speed(steps: np.ndarray, times: np.ndarray) -> float | None:
    """Steps per second: the median between two writes, so that neither compilation nor a pause counts.

    >>> median_speed(np.array([1, 2, 3, 4]), np.array([10.0, 10.5, 11.0, 41.0]))
    2.0
    """
    if not len(times) or not len(steps):
        return None
    ends = np.flatnonzero(np.append(np.diff(times) > 0, True))
    moved, took = np.diff(steps[ends]), np.diff(times[ends])
    speeds = moved[(took > 0) & (moved > 0)] / took[(took > 0) & (moved > 0)]
    return float(np.median(speeds)) if len(speeds) else None


def _duration(run: Run, columns: dict[str, np.ndarray]) -> float:
    events = [event["time"] for event in run.events() if isinstance(event.get("time"), int | float)]
    logged = columns.get("time", np.zeros(0))[-1:].tolist()
    return max(0.0, np.nanmax([run.created, *events, *logged]) - run.created)


def surroundings(run: Run) -> list[tuple[str, Any]]:
    """The environment of a run as rows of path and value, with the command line first.

    >>> import tempfile
    >>> with Run.create("demo", runs_dir=tempfile.mkdtemp()) as run:
    ...     pass
    >>> [path for path, _ in surroundings(run)][:2]
    ['command', 'host']
    """
    environment = dict(run.environment)
    command = environment.pop("command", None)
    first = [("command", shlex.join(map(str, command)))] if isinstance(command, list) else []
    return first + [(path, value) for path, value in flat(environment) if value not in (None, {}, "")]
