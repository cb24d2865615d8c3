"""A sweep from its first point to its last picture."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lapwing.journal import from_json

from . import _summary
from ._axes import SweepError
from ._engine import Engine, EngineName, engine_of
from ._groups import jobs_of
from ._points import Candidate, Namer, Point, Sweep
from ._progress import Progress
from ._results import Measure, Result, result_of, row
from ._search import Costs, Round


@dataclass(frozen=True)
class SweepResult:
    """How a sweep ended: finished; failed, if a point has; stopped, if it can continue. `summary` is the content of
    summary.json."""

    ended: Literal["finished", "failed", "stopped"]
    folder: Path
    summary: dict[str, Any]
    pictures: list[Path]


def run_sweep(
    sweep: Sweep,
    folder: str | os.PathLike[str] | None = None,
    *,
    measure: Measure | None = None,
    engine: EngineName | Engine = "local",
    vectorize: bool = False,
    quiet: bool = True,
) -> SweepResult:
    """Runs the points of a sweep that have not finished yet.

    **Arguments**

    - `folder`: where the sweep is kept, by default `runs/` and its name.
    - `measure`: the metric that points are compared by.
    - `engine`: where the points run; it changes no result, up to rounding.
    - `vectorize`: train points of the same shape as a population.

    >>> import tempfile
    >>> from lapwing.experiments.adding import Config
    >>> from lapwing.sweep import LocalEngine
    >>> sweep = Sweep.of("adding", Config(steps=2, length=2, laps_every=0), ["width=1"])
    >>> result = run_sweep(sweep, tempfile.mkdtemp(), engine=LocalEngine(workers=1))
    >>> result.ended, [row["name"] for row in result.summary["rows"]]
    ('finished', ['width=1'])
    """
    path = Path(folder if folder is not None else Path("runs") / sweep.name)
    chosen, measure = engine_of(engine), measure or Measure()
    _summary.prepare(path, sweep, measure)
    run = _SweepRun(sweep, path, measure, quiet)
    try:
        with _interruptible(), chosen:
            try:
                run.run(chosen, vectorize)
            except KeyboardInterrupt:
                if not quiet and sys.stderr.isatty():
                    print("stopping after the current steps; press Ctrl-C again to kill", file=sys.stderr)
                raise
    except KeyboardInterrupt:
        run.stopped = True
    return run.close()


class _SweepRun:
    """The candidates so far, and the results of each."""

    def __init__(self, sweep: Sweep, folder: Path, measure: Measure, quiet: bool):
        self._sweep, self._folder, self._measure, self._quiet = sweep, folder, measure, quiet
        self._namer = Namer(sweep.axes)
        self._candidates: dict[str, Candidate] = {}
        self._results: dict[str, list[Result | None]] = {}
        # The rounds that each candidate has been in, and the last one it has finished.
        self._visits: dict[str, int] = {}
        self._finished_visit: dict[str, int] = {}
        self._errors: dict[str, str] = {}
        self.stopped = False
        self._start = time.monotonic()
        self._seconds_before = _seconds_before(folder)

    def run(self, engine: Engine, vectorize: bool) -> None:
        rounds, costs = self._sweep.rounds(), None
        # A stopped round has no costs yet.
        while not self.stopped and (proposed := _next_round(rounds, costs)) is not None:
            costs = self._run_round(engine, proposed, vectorize)

    def _run_round(self, engine: Engine, proposed: Round, vectorize: bool) -> Costs:
        candidates = self._namer.candidates(proposed.values)
        if len({each.name for each in candidates}) < len(candidates):
            raise SweepError(
                "expected different combinations in a round, but the search proposed one of them twice"
            )
        for each in candidates:
            self._candidates[each.name] = each
            self._visits[each.name] = self._visits.get(each.name, -1) + 1
        points = self._sweep.points(candidates, proposed.steps)
        waiting = [point for point in points if not self._read(point)]
        progress = Progress(len(points), len(points) - len(waiting), quiet=self._quiet)
        by_name = {point.name: point for point in points}
        with contextlib.closing(progress):
            for report in engine.run(jobs_of(self._sweep.experiment, self._folder, waiting, vectorize)):
                if report.outcomes is None:
                    progress.begin(len(report.job.points))
                    continue
                for outcome in report.outcomes:
                    if outcome.ended == "failed":
                        self._errors[outcome.point] = outcome.message
                    self.stopped |= outcome.ended == "stopped"
                    self._read(by_name[outcome.point])
                    progress.end(failed=outcome.ended == "failed")
                _summary.write(self._folder, self._sweep, self.summary())
        measure = self._resolved()
        means = [each["mean"] for each in self._rows(candidates)]
        return [None if mean is None else measure.cost(mean) for mean in means]

    def _read(self, point: Point) -> bool:
        """Reads the result of a point in this round; whether there is one."""
        name = point.candidate.name
        found = result_of(self._folder, point, self._visits[name])
        seeds = self._results.setdefault(name, [None] * self._sweep.seeds)
        if found or self._visits[name] == 0:
            seeds[point.seed - self._sweep.settings["seed"]] = found
            self._finished_visit[name] = self._visits[name]
        return found is not None

    def _resolved(self) -> Measure:
        known = {name for seeds in self._results.values() for each in seeds if each for name in each.metrics}
        return self._measure.for_metrics(sorted(known)) if known else self._measure

    def _rows(self, candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
        first, measure = self._sweep.settings["seed"], self._resolved()
        seeds = range(first, first + self._sweep.seeds)
        return [row(each, self._results[each.name], seeds, measure) for each in candidates]

    def summary(self) -> dict[str, Any]:
        measure, rows = self._resolved(), self._rows(list(self._candidates.values()))
        # In a halving, those that got further were better.
        order = {
            each["name"]: (-self._finished_visit[each["name"]], measure.cost(each["mean"])) for each in rows
        }
        best = min(
            (each["name"] for each in rows if each["mean"] is not None), key=order.__getitem__, default=None
        )
        return {
            "sweep": self._folder.name,
            "experiment": self._sweep.experiment,
            "metric": measure.metric,
            "better": "lower" if measure.lower else "higher",
            "goal": measure.goal,
            "seeds": self._sweep.seeds,
            "points": len(self._candidates) * self._sweep.seeds,
            "finished": sum(each["finished"] for each in rows),
            "best": best,
            "seconds": self._seconds_before + time.monotonic() - self._start,
            "rows": rows,
            "failed": [{"point": name, "error": error} for name, error in self._errors.items()],
        }

    def close(self) -> SweepResult:
        summary = self.summary()
        _summary.write(self._folder, self._sweep, summary)
        pictures = _summary.draw(self._folder, self._sweep, summary, self._resolved())
        ended = "stopped" if self.stopped else "failed" if self._errors else "finished"
        return SweepResult(ended, self._folder, summary, pictures)


def _next_round(rounds: Any, costs: Costs | None) -> Round | None:
    try:
        return rounds.send(costs)
    except StopIteration:
        return None


def _seconds_before(folder: Path) -> float:
    """The seconds that the sweep had run before it was stopped."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return float(from_json((folder / "summary.json").read_text(encoding="utf-8"))["seconds"])
    return 0.0


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM acts like Ctrl-C. Only the main thread can set signal handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
