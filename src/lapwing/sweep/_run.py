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
from ._engine import Engine, Name
from ._groups import jobs_of
from ._points import Candidate, Point, Rung, Sweep
from ._progress import Progress
from ._results import Measure, Passed, passed, row


@dataclass(frozen=True)
class Resources:
    """Where the points are run. Nothing here changes what comes out, up to rounding."""

    engine: Name = "local"
    workers: int = 0
    address: str | None = None
    vectorize: bool = False


@dataclass(frozen=True)
class SweepResult:
    """How a sweep ended: finished; failed, if a point has; stopped, if it can go on. `summary` is what summary.json
    says."""

    ended: Literal["finished", "failed", "stopped"]
    folder: Path
    summary: dict[str, Any]
    pictures: list[Path]


def run_sweep(
    sweep: Sweep,
    folder: str | os.PathLike[str] | None = None,
    *,
    measure: Measure | None = None,
    on: Resources | None = None,
    quiet: bool = True,
) -> SweepResult:
    """Runs what is left to be run of a sweep in its folder, by default `runs/` and its name.

    >>> import tempfile
    >>> from lapwing.experiments.adding import Config
    >>> sweep = Sweep.of("adding", Config(steps=2, length=2, laps_every=0), ["width=1"])
    >>> result = run_sweep(sweep, tempfile.mkdtemp(), on=Resources(workers=1))
    >>> result.ended, [row["name"] for row in result.summary["rows"]]
    ('finished', ['width=1'])
    """
    place = Path(folder if folder is not None else Path("runs") / sweep.name)
    measure, on = measure or Measure(), on or Resources()
    _summary.prepare(place, sweep, measure)
    under_way = _UnderWay(sweep, place, measure, quiet)
    try:
        with _interruptible(), _engine(place, on) as engine:
            try:
                under_way.run(engine, vectorize=on.vectorize)
            except KeyboardInterrupt:
                _tell_that_it_stops(quiet)
                raise
    except KeyboardInterrupt:
        under_way.stopped = True
    return under_way.close()


class _UnderWay:
    """The candidates that are left, and what is known of every one."""

    def __init__(self, sweep: Sweep, folder: Path, measure: Measure, quiet: bool):
        self._sweep, self._folder, self._measure = sweep, folder, measure
        self._quiet = quiet
        self._candidates = sweep.candidates()
        self._rungs = sweep.rungs(len(self._candidates))
        self._reached: dict[str, list[Passed | None]] = {}
        self._rung_of: dict[str, int] = {}
        self._errors: dict[str, str] = {}
        self.stopped = False
        self._start = time.monotonic()
        self._seconds_before = _seconds_before(folder)

    def run(self, engine: Engine, *, vectorize: bool) -> None:
        left = self._candidates
        for rung in self._rungs:
            self._run_rung(engine, rung, left, vectorize)
            if self.stopped:
                return  # Who is best is not known yet.
            left = self._best(left, rung.keep)

    def _run_rung(self, engine: Engine, rung: Rung, left: Sequence[Candidate], vectorize: bool) -> None:
        steps = rung.steps if len(self._rungs) > 1 else None
        points = self._sweep.points(left, steps)
        waiting = [point for point in points if not self._look(point, rung)]
        progress = Progress(len(points), len(points) - len(waiting), quiet=self._quiet)
        by_name = {point.name: point for point in points}
        with contextlib.closing(progress):
            for report in engine.run(jobs_of(self._sweep.experiment, self._folder, waiting, vectorize)):
                if report.outcomes is None:
                    progress.begin(len(report.job.points))
                    continue
                for outcome in report.outcomes:
                    if outcome.ended == "failed":
                        self._errors[outcome.point] = outcome.said
                    self.stopped |= outcome.ended == "stopped"
                    self._look(by_name[outcome.point], rung)
                    progress.end(failed=outcome.ended == "failed")
                _summary.write(self._folder, self._sweep, self.summary())

    def _look(self, point: Point, rung: Rung) -> bool:
        """Whether a point has passed a rung; what it has reached there counts from now on."""
        found = passed(self._folder, point, rung.number)
        seeds = self._reached.setdefault(point.candidate.name, [None] * self._sweep.seeds)
        if found or rung.number == 0:
            seeds[point.seed - self._sweep.settings["seed"]] = found
            self._rung_of[point.candidate.name] = rung.number
        return found is not None

    def _best(self, candidates: Sequence[Candidate], keep: int) -> list[Candidate]:
        measure = self._decided()
        means = {row["name"]: row["mean"] for row in self._rows(candidates) if row["mean"] is not None}
        kept = sorted(means, key=lambda name: measure.order(means[name]))[:keep]
        return [each for each in candidates if each.name in kept]

    def _decided(self) -> Measure:
        known = {name for seeds in self._reached.values() for each in seeds if each for name in each.metrics}
        return self._measure.for_metrics(sorted(known)) if known else self._measure

    def _rows(self, candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
        first, measure = self._sweep.settings["seed"], self._decided()
        seeds = range(first, first + self._sweep.seeds)
        known = [each for each in candidates if each.name in self._reached]
        return [row(each, self._reached[each.name], seeds, measure) for each in known]

    def summary(self) -> dict[str, Any]:
        measure, rows = self._decided(), self._rows(self._candidates)
        # In a halving, those that came further were better.
        order = {each["name"]: (-self._rung_of[each["name"]], measure.order(each["mean"])) for each in rows}
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
        pictures = _summary.draw(self._folder, self._sweep, summary, self._decided())
        ended = "stopped" if self.stopped else "failed" if self._errors else "finished"
        return SweepResult(ended, self._folder, summary, pictures)


def _tell_that_it_stops(quiet: bool) -> None:
    if not quiet and sys.stderr.isatty():
        print("stopping: each worker ends its step; Ctrl-C once more ends them at once", file=sys.stderr)


def _seconds_before(folder: Path) -> float:
    """How long the sweep has taken before it was stopped."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return float(from_json((folder / "summary.json").read_text(encoding="utf-8"))["seconds"])
    return 0.0


def _engine(folder: Path, on: Resources) -> Engine:
    if on.engine == "ray":
        from ._ray import RayEngine

        return RayEngine(on.address)
    from ._local import LocalEngine

    return LocalEngine(folder, on.workers)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM is as good as Ctrl-C. Only the main thread can say so."""
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
