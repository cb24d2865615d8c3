"""What the points of a sweep say, read from their run folders: a value each, and mean, spread and success of all seeds.

Nothing is kept beside the folders. A point has passed a rung when its journal says for the so-many-th time that it has
finished, which stays true while it goes on to the next one.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lapwing.core import suggestion
from lapwing.journal import JournalError, Run

from ._axes import SweepError
from ._points import Candidate, Point

Better = Literal["", "lower", "higher"]

# What an experiment is judged by, if nobody says otherwise: the first of these that its runs have.
_HEADLINES = ("eval_exact_match", "eval_robust", "eval_accuracy", "eval_loss", "loss")
_SHARE_THAT_IS_SUCCESS = 0.99
_SHARES = ("match", "accuracy", "robust")


@dataclass(frozen=True)
class Measure:
    """By which metric points are judged, at its last step; from which value on that is a success; and which side is
    better: the lower one for what is called a loss or an error, unless told."""

    metric: str = ""
    goal: float | None = None
    better: Better = ""

    @property
    def lower(self) -> bool:
        if self.better:
            return self.better == "lower"
        return any(word in self.metric for word in ("loss", "error"))

    @property
    def is_share(self) -> bool:
        """Whether it is known to lie between 0 and 1."""
        return any(word in self.metric for word in _SHARES)

    def for_metrics(self, known: Iterable[str]) -> "Measure":
        """With what was left open decided by the metrics that there are.

        >>> Measure().for_metrics(["eval_loss", "eval_exact_match"])
        Measure(metric='eval_exact_match', goal=0.99, better='higher')
        """
        known = list(known)
        metric = self.metric or next((name for name in _HEADLINES if name in known), "")
        if metric not in known:
            raise SweepError(f"{metric!r} is not a metric of these runs; {suggestion(metric, known)}")
        named = Measure(metric, self.goal, self.better)
        goal = _SHARE_THAT_IS_SUCCESS if named.is_share and self.goal is None else self.goal
        return Measure(metric, goal, "lower" if named.lower else "higher")

    def is_success(self, value: float) -> bool | None:
        """None where no goal is set."""
        if self.goal is None:
            return None
        return value <= self.goal if self.lower else value >= self.goal

    def order(self, value: float | None) -> float:
        """For sorting, the best first; what has no value comes last."""
        if value is None or math.isnan(value):
            return math.inf
        return value if self.lower else -value


@dataclass(frozen=True)
class Passed:
    """A rung that a point has passed: after how many steps, with which metrics."""

    steps: int
    metrics: dict[str, float]


def passed(folder: Path, point: Point, rung: int = 0) -> Passed | None:
    """How a point has passed a rung; None if it has not yet."""
    try:
        run = Run.open(folder / point.name)
        ends = [event for event in run.events() if event.get("event") == "finished"]
        if len(ends) <= rung:
            return None
        return Passed(int(ends[rung]["steps"]), _metrics(run, ends[rung]))
    except JournalError:
        return None


def _metrics(run: Run, end: dict[str, Any]) -> dict[str, float]:
    """The evaluation at the end, and the last value of what is logged in every step."""
    evaluated = {name: float(value) for name, value in end.items() if name.startswith("eval_")}
    columns = run.columns()
    seen = columns["step"] < end["steps"] if "step" in columns else []
    last = {
        name: float(column[seen][-1])
        for name, column in columns.items()
        if name not in ("step", "time") and not name.startswith("eval_") and any(seen)
    }
    return {**last, **evaluated}


def row(candidate: Candidate, found: Sequence[Passed | None], seeds: Sequence[int], measure: Measure) -> dict:
    """What a candidate has come to: a value for each seed that has finished, and what they are together.

    >>> made = [Passed(9, {"loss": 1.0}), Passed(9, {"loss": 3.0}), None]
    >>> told = row(Candidate("width=8", {"width": 8}), made, [0, 1, 2], Measure("loss", goal=2.0))
    >>> told["finished"], told["mean"], round(told["spread"], 3), told["success"]
    (2, 2.0, 1.414, 0.3333333333333333)
    """
    values = {
        seed: each.metrics[measure.metric]
        for seed, each in zip(seeds, found, strict=True)
        if each and measure.metric in each.metrics
    }
    there = list(values.values())
    good = [measure.is_success(value) for value in there]
    return {
        "name": candidate.name,
        "values": dict(candidate.values),
        "steps": max((each.steps for each in found if each), default=0),
        "seeds": len(seeds),
        "finished": len(there),
        "mean": statistics.fmean(there) if there else None,
        "spread": statistics.stdev(there) if len(there) > 1 else None,
        "least": min(there, default=None),
        "most": max(there, default=None),
        # What failed or is not there yet is no success.
        "success": None if measure.goal is None or not there else sum(map(bool, good)) / len(seeds),
        "by_seed": values,
    }
