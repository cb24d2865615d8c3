"""A sweep with an adaptive search: a combination is asked for whenever a worker is free, and bad ones are pruned.

While the engine trains, a thread looks at the metrics in the run folders of the running points. A trial that the search
wants to prune is marked in the folders of its points and stopped by the command `stop`, wherever they run. A sweep that
continues finds all trials in the folders: first it finishes those that were interrupted, then it asks for new ones.
"""

import contextlib
import functools
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from lapwing.journal import Run, run_folders, to_json

from ._axes import SweepError
from ._curves import Curves, was_pruned
from ._engine import Engine
from ._groups import jobs_of
from ._job import Job
from ._points import Candidate, Point
from ._progress import Progress
from ._record import SweepRecord
from ._search import PARTS, AdaptiveSearch, Trial, Values, is_adaptive

WATCH_S = 0.5
"""Seconds between two looks at the running points."""


def run_adaptive(record: SweepRecord, engine: Engine, vectorize: bool, quiet: bool) -> None:
    """Runs the trials that the search asks for, until it has enough."""
    assert is_adaptive(record.sweep.search)
    trials = _Trials(record, record.sweep.search)
    for candidate in _candidates_in_folder(record):
        trials.add(candidate)
    progress = Progress(record.sweep.search.samples * record.sweep.seeds, trials.ended_points(), quiet=quiet)
    with contextlib.closing(progress), trials.watched():
        for report in engine.run(trials.jobs(vectorize)):
            with trials.lock:
                record.take(report, trials.points, progress)
                trials.end([outcome.point for outcome in report.outcomes or ()])


class _Trials:
    """The trials of a sweep, in the order in which they were proposed. Two threads use it, each holding the lock."""

    def __init__(self, record: SweepRecord, search: AdaptiveSearch):
        self.lock = threading.RLock()
        self.points: dict[str, Point] = {}
        self._record, self._search = record, search
        self._curves = Curves(record.folder)
        self._waiting: dict[str, set[str]] = {}
        """The points of each trial that have not ended, by the name of its candidate."""

    def add(self, candidate: Candidate) -> None:
        self._record.add(candidate)
        points = self._record.sweep.points([candidate])
        self.points |= {point.name: point for point in points}
        left = {point.name for point in points if not self._record.read(point)}
        if any(was_pruned(self._record.folder / point.name) for point in points) and left:
            self._mark_pruned(candidate)
            left = set()
        self._waiting[candidate.name] = left

    def end(self, names: list[str]) -> None:
        for name in names:
            candidate = self.points[name].candidate
            self._waiting[candidate.name].discard(name)
            if candidate.name in self._record.pruned:
                self._mark_pruned(candidate)

    def ended_points(self) -> int:
        return len(self.points) - sum(map(len, self._waiting.values()))

    def jobs(self, vectorize: bool) -> Iterator[Job]:
        """The jobs of the trials that were interrupted, then of new ones. Each is made when the engine takes it."""
        left = [candidate for candidate in self._record.candidates.values() if self._waiting[candidate.name]]
        while True:
            with self.lock:
                candidate = left.pop(0) if left else self._ask()
                if candidate is None:
                    return
                waiting = [self.points[name] for name in sorted(self._waiting[candidate.name])]
            sweep, folder = self._record.sweep, self._record.folder
            for job in jobs_of(sweep.experiment, folder, waiting, vectorize, self._record.source):
                # Another of its seeds may have had it pruned before this one starts.
                if candidate.name not in self._record.pruned:
                    yield job
                    continue
                with self.lock:
                    self.end(list(job.points))

    def _ask(self) -> Candidate | None:
        if self._record.stopped:
            return None
        values = self._search.ask(self._record.sweep.axes, list(self._all().values()))
        if values is None:
            return None
        (candidate,) = self._record.namer.candidates([values])
        self.add(candidate)
        return candidate

    def _all(self) -> dict[str, Trial]:
        measure = self._record.measure()
        rows = self._record.rows(list(self._record.candidates.values()))
        return {row["name"]: self._trial(row, measure) for row in rows}

    def _trial(self, row: Mapping[str, Any], measure: Any) -> Trial:
        name, cost = row["name"], None
        points = [point for point in self.points.values() if point.candidate.name == name]
        if row["pruned"]:
            state = "pruned"
        elif self._waiting[name]:
            state = "running"
        else:
            state = "failed" if row["mean"] is None else "finished"
            cost = measure.cost(row["mean"])
        curve = self._curves.of(points, measure, is_growing=bool(self._waiting[name]))
        return Trial(row["values"], state, cost, curve)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Prunes trials in a thread, inside the `with` block."""
        done = threading.Event()
        thread = threading.Thread(target=self._watch, args=(done,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _watch(self, done: threading.Event) -> None:
        while not done.wait(WATCH_S):
            # The other thread raises it too, when the next point ends.
            with self.lock, contextlib.suppress(SweepError):
                self._prune()

    def _prune(self) -> None:
        trials = self._all()
        for name, trial in trials.items():
            others = [other for other_name, other in trials.items() if other_name != name]
            # Near its end there is nothing left to save.
            may_prune = trial.state == "running" and max(trial.curve, default=PARTS) < PARTS - 1
            if may_prune and self._search.prune(trial, others):
                self._mark_pruned(self._record.candidates[name])
            if name in self._record.pruned:
                for point in self._waiting[name]:
                    self._curves.stop(point, max(trial.curve, default=0))

    def _mark_pruned(self, candidate: Candidate) -> None:
        points = [point for point in self.points.values() if point.candidate.name == candidate.name]
        self._record.pruned[candidate.name] = max(self._curves.steps(point.name) for point in points)


def _candidates_in_folder(record: SweepRecord) -> list[Candidate]:
    """The candidates that have a run folder, oldest first."""
    runs = sorted(map(Run.open, run_folders(record.folder)), key=lambda run: run.created)
    values = {to_json(each): each for each in (_values(record, run.config) for run in runs)}
    return record.namer.candidates(values.values())


def _values(record: SweepRecord, config: Mapping[str, Any]) -> Values:
    return {
        axis.path: functools.reduce(lambda group, name: group[name], axis.path.split("."), config)
        for axis in record.sweep.axes
    }
