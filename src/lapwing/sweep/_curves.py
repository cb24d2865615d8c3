"""The costs of a point while it trains, read from its run folder, and how it is stopped.

The training is divided into parts of equal length. The cost of a part is the mean of the metric in it, so trials with
different numbers of steps can be compared, and the noise of single steps does not decide.
"""

import contextlib
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from lapwing.journal import JournalError, Run, to_json

from ._points import Point
from ._results import Measure
from ._search import PARTS

_MARK = "pruned.json"


def was_pruned(folder: Path) -> bool:
    """Whether the point of a run folder was pruned."""
    return (folder / _MARK).exists()


class Curves:
    """The curves of the points of a sweep. Growing files are read on from where they were read before."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._runs: dict[str, Run] = {}
        self._ended: dict[tuple[str, Measure], dict[int, float]] = {}

    def of(self, points: Sequence[Point], measure: Measure, *, is_growing: bool) -> Mapping[int, float]:
        """The mean cost of some points in each complete part, over those that have reached it."""
        if not measure.metric:
            return {}
        found = [self._of_point(point, _during(measure, point), is_growing) for point in points]
        parts = sorted({part for curve in found for part in curve})
        return {part: statistics.fmean(curve[part] for curve in found if part in curve) for part in parts}

    def _of_point(self, point: Point, measure: Measure, is_growing: bool) -> Mapping[int, float]:
        key = (point.name, measure)
        if key in self._ended:
            return self._ended[key]
        curve: dict[int, float] = {}
        with contextlib.suppress(JournalError):  # It has not started, or has not logged the metric yet.
            steps, values = self._run(point.name).curve(measure.metric)
            curve = _by_part(steps.tolist(), values.tolist(), point.settings["steps"], measure)
        if not is_growing:
            self._runs.pop(point.name, None)
            self._ended[key] = curve
        return curve

    def steps(self, name: str) -> int:
        """The number of steps that a point has made."""
        with contextlib.suppress(JournalError):
            return int(self._run(name).latest().get("step", -1)) + 1
        return 0

    def stop(self, name: str, part: int) -> None:
        """Stops a point as pruned. A point that has no folder yet is stopped when this is called again."""
        with contextlib.suppress(JournalError):
            run = self._run(name)
            if not was_pruned(run.folder):
                run.put(_MARK, to_json({"part": part, "of": PARTS}) + "\n")
                run.note(f"pruned by the sweep after {part / PARTS:.0%} of its steps")
                run.post("stop")

    def _run(self, name: str) -> Run:
        if name not in self._runs:
            self._runs[name] = Run.open(self._folder / name)
        return self._runs[name]


def _during(measure: Measure, point: Point) -> Measure:
    """The metric to watch during a training: the measure's, or the loss if that is only evaluated at the end."""
    is_evaluated = measure.metric.startswith("eval_")
    return (
        measure
        if not is_evaluated or point.settings.get("evaluate_every")
        else Measure("loss", better="lower")
    )


def _by_part(
    steps: Sequence[float], values: Sequence[float], total: int, measure: Measure
) -> dict[int, float]:
    """The mean cost in each complete part.

    >>> _by_part([0, 1, 2, 3, 4], [5.0, 3.0, 1.0, 1.0, 9.0], 40, Measure("loss"))
    {1: 4.0, 2: 1.0}
    """
    parts: dict[int, list[float]] = {}
    for step, value in zip(steps, values, strict=True):
        parts.setdefault(int(step) * PARTS // total + 1, []).append(measure.cost(value))
    last = (int(steps[-1]) + 1) * PARTS // total if len(steps) else 0
    return {part: statistics.fmean(costs) for part, costs in parts.items() if part <= last}
