"""What is known of a sweep while it runs: its candidates, the result of each, and the summary made from them."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from lapwing.experiments import Source, short
from lapwing.journal import Lock

from . import _summary
from ._engine import Report
from ._points import Candidate, Namer, Point, Sweep
from ._progress import Progress
from ._results import Measure, Result, result_of, row

Stopped = Literal["stopped", "preempted"]


class SweepRecord:
    """The candidates so far, and the results of each."""

    def __init__(self, sweep: Sweep, folder: Path, measure: Measure, source: Source | None, lock: Lock):
        self.sweep, self.folder, self._lock = sweep, folder, lock
        self.source = source.to_json() if source else None
        """The file of the experiment, for the workers."""
        self.namer = Namer(sweep.axes)
        self.candidates: dict[str, Candidate] = {}
        self.results: dict[str, list[Result | None]] = {}
        self.errors: dict[str, str] = {}
        self.pruned: dict[str, int] = {}
        """The steps that a candidate had when it was pruned, by its name."""
        self.stopped: Stopped | None = None
        self._measure = measure
        # The rounds that each candidate has been in, and the last one it has finished.
        self._visits: dict[str, int] = {}
        self._finished_visit: dict[str, int] = {}
        self._start = time.monotonic()
        self._seconds_before = _seconds_before(folder)

    def add(self, candidate: Candidate) -> None:
        """Begins a round of a candidate."""
        self.candidates[candidate.name] = candidate
        self._visits[candidate.name] = self._visits.get(candidate.name, -1) + 1

    def read(self, point: Point) -> bool:
        """Reads the result of a point in this round; whether there is one."""
        name = point.candidate.name
        found = result_of(self.folder, point, self._visits[name])
        seeds = self.results.setdefault(name, [None] * self.sweep.seeds)
        if found or self._visits[name] == 0:
            seeds[point.seed - self.sweep.settings["seed"]] = found
            self._finished_visit[name] = self._visits[name]
        return found is not None

    def _pruned_at(self, name: str) -> int | None:
        """The steps of a pruned candidate. One that finished before it read the command to stop was not pruned."""
        return self.pruned.get(name) if None in self.results[name] else None

    def take(self, report: Report, points: Mapping[str, Point], progress: Progress) -> None:
        """Takes a report of the engine on these points."""
        if report.outcomes is None:
            progress.begin(len(report.job.points))
            return
        for outcome in report.outcomes:
            point = points[outcome.point]
            if outcome.ended == "failed":
                self.errors[outcome.point] = outcome.message
            if outcome.ended in ("stopped", "preempted") and point.candidate.name not in self.pruned:
                self.stopped = outcome.ended
            self.read(point)
            progress.end(failed=outcome.ended == "failed")
        self.write()

    def measure(self) -> Measure:
        """The measure, with defaults resolved for the metrics of the runs."""
        known = {name for seeds in self.results.values() for each in seeds if each for name in each.metrics}
        return self._measure.for_metrics(sorted(known)) if known else self._measure

    def rows(self, candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
        first, measure = self.sweep.settings["seed"], self.measure()
        seeds = range(first, first + self.sweep.seeds)
        return [
            row(each, self.results[each.name], seeds, measure, self._pruned_at(each.name))
            for each in candidates
        ]

    def summary(self) -> dict[str, Any]:
        """The content of summary.json."""
        measure, rows = self.measure(), self.rows(list(self.candidates.values()))
        # In a halving, those that got further were better.
        order = {
            each["name"]: (-self._finished_visit[each["name"]], measure.cost(each["mean"])) for each in rows
        }
        ended = [each["name"] for each in rows if each["mean"] is not None and not each["pruned"]]
        return {
            "sweep": self.folder.name,
            "experiment": short(self.sweep.experiment),
            "metric": measure.metric,
            "better": "lower" if measure.lower else "higher",
            "goal": measure.goal,
            "seeds": self.sweep.seeds,
            "points": len(self.candidates) * self.sweep.seeds,
            "finished": sum(each["finished"] for each in rows),
            "pruned": [each["name"] for each in rows if each["pruned"]],
            "best": min(ended, key=order.__getitem__, default=None),
            "seconds": self._seconds_before + time.monotonic() - self._start,
            "rows": rows,
            "failed": [{"point": name, "error": error} for name, error in self.errors.items()],
        }

    def write(self) -> dict[str, Any]:
        """Writes the summary, and returns it. An error if the folder is another sweep's by now."""
        self._lock.check(self.folder)
        summary = self.summary()
        _summary.write(self.folder, self.sweep, summary)
        return summary


def _seconds_before(folder: Path) -> float:
    """The seconds that the sweep had run before it was stopped."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        return float(_summary.read(folder / "summary.json")["seconds"])
    return 0.0
