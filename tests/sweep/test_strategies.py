"""Every search and every engine keeps to its interface: those of Lapwing, and those that a user wrote."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lapwing.experiments.adding import Config
from lapwing.journal import Run, from_json, to_json
from lapwing.sweep import (
    Costs,
    Engine,
    Grid,
    Halving,
    Job,
    LocalEngine,
    Random,
    RayEngine,
    Report,
    Round,
    Search,
    Sweep,
    SweepError,
    load_sweep,
    run_job,
    run_sweep,
    search_of,
)

CONFIG = Config(steps=8, length=2, width=1, batch_size=1, laps_every=0)
GRID = ["learning_rate=0.1,0.2,0.3,0.4"]


@dataclass(frozen=True)
class Climb:
    """A user's search: two random combinations, then two near the better one, and the best of all for longer."""

    seed: int = 0

    def rounds(self, axes, steps):
        chance = random.Random(self.seed)
        (axis,) = axes
        first = chance.sample(range(len(axis.values)), 2)
        costs = yield Round([{axis.path: axis.values[i]} for i in first], steps // 2)
        found = dict(zip(first, _failed_last(costs), strict=True))
        best = min(first, key=lambda i: found[i])
        near = [i for i in range(len(axis.values)) if abs(i - best) == 1 and i not in found]
        if near:
            costs = yield Round([{axis.path: axis.values[i]} for i in near], steps // 2)
            found |= dict(zip(near, _failed_last(costs), strict=True))
        yield Round([{axis.path: axis.values[min(found, key=lambda i: found[i])]}], steps)


def _failed_last(costs: Costs) -> list[float]:
    return [math.inf if cost is None else cost for cost in costs]


class InProcess:
    """A user's engine: one job after the other, in this process."""

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, jobs: Sequence[Job]) -> Iterator[Report]:
        for job in jobs:
            yield Report(job)
            yield Report(job, run_job(job))


SEARCHES = [Grid(), Random(3), Halving(rungs=2, eta=2), Halving(rungs=3, eta=2, samples=3), Climb(), Climb(3)]
ENGINES = [
    InProcess,
    pytest.param(lambda: LocalEngine(workers=1), marks=pytest.mark.slow, id="local"),
    pytest.param(
        lambda: RayEngine(), marks=[pytest.mark.slow, pytest.mark.filterwarnings("ignore")], id="ray"
    ),
]


def played(sweep: Sweep) -> list[Round]:
    """The rounds of a search for which a smaller learning rate is better, and the largest one fails."""
    rounds, found = sweep.rounds(), []
    costs = None
    while True:
        try:
            found.append(rounds.send(costs))
        except StopIteration:
            return found
        rates = [values["learning_rate"] for values in found[-1].values]
        costs = [None if rate == 0.4 else rate for rate in rates]


@pytest.fixture(params=SEARCHES, ids=str)
def search(request: pytest.FixtureRequest) -> Search:
    return request.param


def test_a_search_proposes_the_same_again_within_its_axes(search: Search):
    sweep = Sweep.of("adding", CONFIG, GRID, search=search)
    rounds = played(sweep)
    assert rounds == played(sweep)
    steps: dict[str, int] = {}
    for each in rounds:
        names = [to_json(values) for values in each.values]
        assert len(set(names)) == len(names) >= 1
        assert all(set(values) == {"learning_rate"} for values in each.values)
        assert all(values["learning_rate"] in (0.1, 0.2, 0.3, 0.4) for values in each.values)
        for name in names:
            assert (each.steps or CONFIG.steps) > steps.get(name, 0), "it would be trained twice for the same"
            steps[name] = each.steps or CONFIG.steps
    assert rounds[-1].steps in (None, CONFIG.steps)


def test_a_search_is_written_and_read(search: Search, tmp_path: Path):
    sweep = Sweep.of("adding", CONFIG, GRID, search=search)
    again = Sweep.from_json(from_json(to_json(sweep.to_json())), type(search))
    assert again == sweep
    assert again.name == sweep.name


def test_a_search_that_is_not_a_dataclass_is_refused():
    class Plain:
        rounds = Grid.rounds

    with pytest.raises(
        SweepError, match=r"Plain should be a frozen dataclass, so that sweep.json can hold it"
    ):
        Sweep.of("adding", CONFIG, GRID, search=Plain()).to_json()


def test_a_combination_is_proposed_once_in_a_round(tmp_path: Path):
    @dataclass(frozen=True)
    class Twice:
        def rounds(self, axes, steps):
            yield Round([{"learning_rate": 0.1}] * 2)

    with pytest.raises(SweepError, match="the search proposed one of them twice"):
        run_sweep(Sweep.of("adding", CONFIG, GRID, search=Twice()), tmp_path / "x", engine=InProcess())


@pytest.mark.slow
def test_a_users_search_on_a_users_engine_runs_and_continues(tmp_path: Path):
    sweep = Sweep.of("adding", CONFIG, GRID, search=Climb())
    result = run_sweep(sweep, tmp_path / "x", engine=InProcess())
    assert result.ended == "finished"
    steps = [row["steps"] for row in result.summary["rows"]]
    assert sorted(steps)[-2:] == [4, 8], "one of them was trained for longer"
    assert result.summary["best"] == result.summary["rows"][steps.index(8)]["name"]
    best = Run.open(tmp_path / "x" / f"{result.summary['best']},seed=0")
    events = list(best.events())
    assert [event["steps"] for event in events if event["event"] == "finished"] == [4, 8]
    with pytest.raises(
        SweepError, match=r"the search Climb is not one of grid, random, halving, optuna; continue the"
    ):
        load_sweep(tmp_path / "x")
    again = run_sweep(sweep, tmp_path / "x", engine=InProcess())
    assert again.summary["rows"] == result.summary["rows"]
    assert list(Run.open(best.folder).events()) == events, "it was run again"


@pytest.mark.slow
@pytest.mark.parametrize("make", ENGINES)
def test_an_engine_runs_what_is_left_and_reports_failures(make, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    engine: Engine = make()
    sweep = Sweep.of("adding", CONFIG, ["learning_rate=0.1,-1"])
    result = run_sweep(sweep, tmp_path / "x", engine=engine)
    good, bad = result.summary["rows"]
    assert (result.ended, good["finished"], bad["finished"]) == ("failed", 1, 0)
    assert result.summary["failed"] == [
        {
            "point": "learning_rate=-1,seed=0",
            "error": "learning_rate should be a positive number, but is -1.0",
        }
    ]
    reports = []
    with engine:
        for report in engine.run([Job("nothing", str(tmp_path), {"a": {}, "b": {}})]):
            reports.append(report)
    (end,) = [report for report in reports if report.outcomes is not None]
    assert [(outcome.point, outcome.ended) for outcome in end.outcomes] == [("a", "failed"), ("b", "failed")]


def test_names_are_short_for_searches():
    assert search_of("grid", samples=0, eta=5) == Grid()
    assert search_of("random", samples=2, seed=1) == Random(2, 1)
    assert search_of("halving", rungs=2) == Halving(rungs=2)
