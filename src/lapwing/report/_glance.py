"""A run at a glance: the few numbers that a person asks for first."""

from dataclasses import dataclass

import numpy as np

from lapwing.journal import Run


@dataclass(frozen=True)
class Glance:
    """What is None was never logged."""

    step: int | None
    loss: float | None
    best: float | None
    best_step: int | None
    steps_per_second: float | None
    seconds: float
    """From the start to the last word of the run, pauses included."""
    rollbacks: int
    restarts: int
    skipped: int
    """Updates that were left out because they were not finite."""


def glance(run: Run) -> Glance:
    """Looks at all of a run's numbers.

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
        steps_per_second=_speed(steps, columns.get("time", np.zeros(0))),
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


def _speed(steps: np.ndarray, times: np.ndarray) -> float | None:
    """The median over the stretches between two writes, so that neither compiling nor a pause counts."""
    if not len(times) or not len(steps):
        return None
    ends = np.flatnonzero(np.append(np.diff(times) > 0, True))
    moved, took = np.diff(steps[ends]), np.diff(times[ends])
    speeds = moved[moved > 0] / took[moved > 0]
    return float(np.median(speeds)) if len(speeds) else None


def _duration(run: Run, columns: dict[str, np.ndarray]) -> float:
    said = [event["time"] for event in run.events() if isinstance(event.get("time"), int | float)]
    logged = columns.get("time", np.zeros(0))[-1:].tolist()
    return max(0.0, np.nanmax([run.created, *said, *logged]) - run.created)
