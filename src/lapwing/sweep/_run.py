"""A sweep from its first point to its last picture."""

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lapwing.core import Preempted, raised_interrupts
from lapwing.experiments import Source, split

from . import _summary
from ._adaptive import run_adaptive
from ._axes import SweepError
from ._engine import Engine, EngineName, engine_of
from ._groups import jobs_of
from ._metrics import check_metric
from ._points import Sweep
from ._progress import Progress
from ._record import SweepRecord
from ._results import Measure
from ._search import Costs, Round, is_adaptive


@dataclass(frozen=True)
class SweepResult:
    """How a sweep ended: finished; failed, if a point has; stopped, or preempted by SIGTERM, if it can continue.
    `summary` is the content of summary.json.

    >>> summary = {"rows": [{"name": "width=8", "mean": 0.3}, {"name": "width=16", "mean": 0.1}]}
    >>> result = SweepResult("finished", Path("runs/widths"), summary, [])
    >>> min(result.summary["rows"], key=lambda row: row["mean"])["name"]
    'width=16'
    """

    ended: Literal["finished", "failed", "stopped", "preempted"]
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
    allow_change: bool = False,
    quiet: bool = True,
) -> SweepResult:
    """Runs the points of a sweep that have not finished yet.

    **Arguments**

    - `folder`: where the sweep is kept, by default `runs/` and its name.
    - `measure`: the metric that points are compared by.
    - `engine`: where the points run; it changes no result, up to rounding.
    - `vectorize`: train points of the same shape as a population.
    - `allow_change`: continue although the file of the experiment has changed since the sweep began.

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
    source = _source_of(sweep)
    check_metric(sweep, measure.for_config(sweep.settings), source)
    with _summary.held(path) as lock, raised_interrupts():
        _summary.prepare(path, sweep, measure, source, allow_change=allow_change)
        record = SweepRecord(sweep, path, measure.for_config(sweep.settings), source, lock)
        run = run_adaptive if is_adaptive(sweep.search) else _run_rounds
        try:
            with chosen:
                try:
                    run(record, chosen, vectorize, quiet)
                except KeyboardInterrupt:
                    if not quiet and sys.stderr.isatty():
                        print("stopping after the current steps; press Ctrl-C again to kill", file=sys.stderr)
                    raise
        except KeyboardInterrupt as interrupt:
            record.stopped = "preempted" if isinstance(interrupt, Preempted) else "stopped"
        return _closed(record)


def _closed(record: SweepRecord) -> SweepResult:
    summary = record.write()
    pictures = _summary.draw(record.folder, record.sweep, summary, record.measure())
    ended = record.stopped or ("failed" if record.errors else "finished")
    return SweepResult(ended, record.folder, summary, pictures)


def _run_rounds(record: SweepRecord, engine: Engine, vectorize: bool, quiet: bool) -> None:
    rounds, costs = record.sweep.rounds(), None
    # A stopped round has no costs yet.
    while not record.stopped and (proposed := _next_round(rounds, costs)) is not None:
        costs = _run_round(record, engine, proposed, vectorize, quiet)


def _run_round(record: SweepRecord, engine: Engine, proposed: Round, vectorize: bool, quiet: bool) -> Costs:
    candidates = record.namer.candidates(proposed.values)
    if len({each.name for each in candidates}) < len(candidates):
        raise SweepError(
            "expected different combinations in a round, but the search proposed one of them twice"
        )
    for each in candidates:
        record.add(each)
    points = record.sweep.points(candidates, proposed.steps)
    waiting = [point for point in points if not record.read(point)]
    progress = Progress(len(points), len(points) - len(waiting), quiet=quiet)
    by_name = {point.name: point for point in points}
    with contextlib.closing(progress):
        jobs = jobs_of(record.sweep.experiment, record.folder, waiting, vectorize, record.source)
        for report in engine.run(jobs):
            record.take(report, by_name, progress)
    measure = record.measure()
    means = [each["mean"] for each in record.rows(candidates)]
    return [None if mean is None else measure.cost(mean) for mean in means]


def _source_of(sweep: Sweep) -> Source | None:
    """The file of the experiment as it is now, which all points train, whatever happens to it meanwhile."""
    where, _ = split(sweep.experiment)
    return Source.read(where) if where.endswith(".py") else None


def _next_round(rounds: Any, costs: Costs | None) -> Round | None:
    try:
        return rounds.send(costs)
    except StopIteration:
        return None
