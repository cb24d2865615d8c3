"""The results of a sweep's points, read from their run folders: a value each, and statistics over the seeds.

Nothing is stored besides the folders. A point has finished its n-th round when its journal has n "finished" events,
which stays true while it continues with the next one.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lapwing.core import suggestion
from lapwing.journal import JournalError, Run

from ._axes import SweepError
from ._points import Candidate, Point

Better = Literal["", "lower", "higher"]

_BETTER: dict[str, Better] = {"min": "lower", "max": "higher"}
# The default metric: the first of these that the runs have.
_HEADLINES = ("eval_exact_match", "eval_robust", "eval_accuracy", "eval_loss", "loss")
_GOAL_OF_A_SHARE = 0.99
_SHARES = ("match", "accuracy", "robust")


@dataclass(frozen=True)
class Measure:
    """The metric that points are compared by, at their last step; the value from which a point is a success; and
    whether lower or higher is better, by default lower for metrics called loss or error."""

    metric: str = ""
    goal: float | None = None
    better: Better = ""

    def __post_init__(self) -> None:
        if self.goal is not None and math.isnan(self.goal):
            raise SweepError("the goal of a sweep should be a number, but is nan; leave it out to have none")

    @property
    def lower(self) -> bool:
        if self.better:
            return self.better == "lower"
        return any(word in self.metric for word in ("loss", "error"))

    @property
    def is_share(self) -> bool:
        """Whether it is known to be between 0 and 1."""
        return any(word in self.metric for word in _SHARES)

    def for_metrics(self, known: Iterable[str]) -> "Measure":
        """The same with defaults resolved for the metrics of the runs.

        >>> Measure().for_metrics(["eval_loss", "eval_exact_match"])
        Measure(metric='eval_exact_match', goal=0.99, better='higher')
        """
        known = list(known)
        metric = self.metric or next((name for name in _HEADLINES if name in known), "")
        if metric not in known:
            raise SweepError(f"{metric!r} is not a metric of these runs; {suggestion(metric, known)}")
        named = Measure(metric, self.goal, self.better)
        goal = _GOAL_OF_A_SHARE if named.is_share and self.goal is None else self.goal
        return Measure(metric, goal, "lower" if named.lower else "higher")

    def for_config(self, settings: Mapping[str, Any]) -> "Measure":
        """The same with the metric that a config names as the best, if none is given here.

        >>> Measure().for_config({"best": "eval_accuracy", "mode": "max"})
        Measure(metric='eval_accuracy', goal=None, better='higher')
        """
        best = settings.get("best") or "loss"
        if (
            self.metric or best == "loss"
        ):  # What every config has by default: the headline of the runs is better.
            return self
        return Measure(best, self.goal, self.better or _BETTER.get(settings.get("mode", ""), ""))

    def is_success(self, value: float) -> bool | None:
        """None without a goal."""
        if self.goal is None:
            return None
        return value <= self.goal if self.lower else value >= self.goal

    def cost(self, value: float | None) -> float:
        """The value as something to minimize; infinite without a value."""
        if value is None or math.isnan(value):
            return math.inf
        return value if self.lower else -value


@dataclass(frozen=True)
class Result:
    """A finished training of a point: its steps and last metrics."""

    steps: int
    metrics: dict[str, float]


def result_of(folder: Path, point: Point, visit: int = 0) -> Result | None:
    """The result of a point in the n-th round that it was part of; None if it has not finished there."""
    try:
        run = Run.open(folder / point.name)
        ends = [event for event in run.events() if event.get("event") == "finished"]
        if len(ends) <= visit:
            return None
        return Result(int(ends[visit]["steps"]), _metrics(run, ends[visit]))
    except JournalError:
        return None


def _metrics(run: Run, end: dict[str, Any]) -> dict[str, float]:
    """The evaluation at the end, and the last values of the metrics of a step."""
    evaluated = {name: float(value) for name, value in end.items() if name.startswith("eval_")}
    columns = run.columns()
    seen = columns["step"] < end["steps"] if "step" in columns else []
    last = {
        name: float(column[seen][-1])
        for name, column in columns.items()
        if name not in ("step", "time") and not name.startswith("eval_") and any(seen)
    }
    return {**last, **evaluated}


def row(
    candidate: Candidate,
    found: Sequence[Result | None],
    seeds: Sequence[int],
    measure: Measure,
    pruned: int | None = None,
) -> dict[str, Any]:
    """The results of a candidate: the value of each finished seed, and their statistics. `pruned` are the steps of one
    that was pruned.

    >>> made = [Result(9, {"loss": 1.0}), Result(9, {"loss": 3.0}), None]
    >>> found = row(Candidate("width=8", {"width": 8}), made, [0, 1, 2], Measure("loss", goal=2.0))
    >>> found["finished"], found["mean"], round(found["spread"], 3), found["success"]
    (2, 2.0, 1.414, 0.3333333333333333)
    """
    values = {
        seed: each.metrics[measure.metric]
        for seed, each in zip(seeds, found, strict=True)
        if each and measure.metric in each.metrics
    }
    numbers = list(values.values())
    good = [measure.is_success(value) for value in numbers]
    return {
        "name": candidate.name,
        "values": dict(candidate.values),
        "steps": max((each.steps for each in found if each), default=0) if pruned is None else pruned,
        "seeds": len(seeds),
        "finished": len(numbers),
        "mean": statistics.fmean(numbers) if numbers else None,
        "spread": statistics.stdev(numbers) if len(numbers) > 1 else None,
        "least": min(numbers, default=None),
        "most": max(numbers, default=None),
        # A seed that failed or has not finished is no success.
        "success": None if measure.goal is None or not numbers else sum(map(bool, good)) / len(seeds),
        "pruned": pruned is not None,
        "by_seed": values,
    }
