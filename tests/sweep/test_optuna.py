"""Optuna's search: what it proposes, what it prunes, and that a sweep with it loses nothing."""

import dataclasses
import itertools
import json
import math
import random
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lapwing.cli import main
from lapwing.experiments.adding import Config
from lapwing.journal import Run, from_json, to_json
from lapwing.sweep import Optuna, Random, Sweep, SweepError, SweepResult, Trial, load_sweep, run_sweep
from lapwing.sweep import _adaptive as adaptive
from lapwing.sweep._axes import axis_of

from .synthetic import SyntheticEngine

pytest.importorskip("optuna", reason="Optuna is not installed")

CONFIG = Config(steps=20, laps_every=0)
GRID = ["lr=1e-4..1e-1:log", "width=4..64", "clip=1,10"]


def axes(*texts: str):
    return [axis_of(text, Config) for text in texts]


def loss_of(settings: Mapping[str, Any], done: float = 1.0) -> float:
    """Best at lr=3e-3, width=48 and clip=10; falls from 5 to its end."""
    far = math.log10(settings["learning_rate"] / 3e-3) ** 2 + ((settings["width"] - 48) / 30) ** 2
    end = far + 0.3 * (settings["clip"] < 5)
    return end + (5 - end) * (1 - done) ** 2


def proposed(search: Optuna, grid: Sequence[str]) -> list[Trial]:
    """The trials of a search, each of which has finished before the next is asked for."""
    trials: list[Trial] = []
    while (values := search.ask(axes(*grid), trials)) is not None:
        settings = {"learning_rate": 3e-3, "width": 48, "clip": 10.0, **values}
        trials.append(Trial(values, "finished", loss_of(settings)))
    return trials


def swept(folder: Path, search, engine: SyntheticEngine, grid=GRID, **options) -> SweepResult:
    return run_sweep(Sweep.of("adding", CONFIG, grid, search=search, **options), folder, engine=engine)


def names(result: SweepResult) -> list[str]:
    return [row["name"] for row in result.summary["rows"]]


def test_it_proposes_different_values_within_the_axes():
    trials = proposed(Optuna(20, seed=1), [*GRID, "length=2..200:log"])
    assert len({to_json(trial.values) for trial in trials}) == 20
    for trial in trials:
        values = trial.values
        assert list(values) == ["learning_rate", "width", "clip", "length"]
        assert 1e-4 <= values["learning_rate"] <= 1e-1
        assert values["learning_rate"] == float(f"{values['learning_rate']:.4g}")
        assert values["width"] in range(4, 65)
        assert values["clip"] in (1.0, 10.0)
        assert isinstance(values["length"], int)
        assert 2 <= values["length"] <= 200


def test_the_same_seed_and_trials_have_the_same_answer():
    assert proposed(Optuna(15, seed=3), GRID) == proposed(Optuna(15, seed=3), GRID)
    assert proposed(Optuna(3, seed=3), GRID) != proposed(Optuna(3, seed=4), GRID)


def test_it_ends_when_all_combinations_are_tried():
    trials = proposed(Optuna(50), ["width=1,2,3", "clip=1,2"])
    assert len({to_json(trial.values) for trial in trials}) == len(trials) == 6


@pytest.mark.slow
def test_tpe_beats_random_at_equal_budget():
    """The best of 40 for ten seeds each; docs/sweeps.md has the numbers."""
    wins = 0
    for seed in range(10):
        best = min(trial.cost or 0.0 for trial in proposed(Optuna(40, seed), GRID))
        (drawn,) = Random(40, seed).rounds(axes(*GRID), CONFIG.steps)
        wins += best < min(map(loss_of, drawn.values))
    assert wins >= 8


def trial(*costs: float, state="running") -> Trial:
    """A trial whose first parts have these costs."""
    return Trial({}, state, costs[-1], dict(enumerate(costs, start=1)))


OTHERS = [trial(*[5.0, 4.0, 3.0, end, end, end], state="finished") for end in (1.0, 1.1, 1.2, 1.3, 1.4)]


@pytest.mark.parametrize(
    ("pruner", "costs", "others", "expected"),
    [
        ("median", [9, 9, 9, 1.25], OTHERS, True),
        ("median", [9, 9, 9, 1.15], OTHERS, False),
        ("median", [9, 9, 9], OTHERS, False),  # too early
        ("median", [9, 9, 9, 9], OTHERS[:4], False),  # too few to compare with
        ("median", [9, 9, 9, math.inf], OTHERS, True),
        ("median", [], OTHERS, False),
        ("halving", [9, 4.5], OTHERS, True),
        ("halving", [9, 3.9], OTHERS, False),
        ("halving", [9], OTHERS, False),
        ("halving", [4, 3, 3, 3, 3, 3], OTHERS, True),  # at the second rung
        ("none", [9, 9, 9, 9, 9], OTHERS, False),
    ],
)
def test_what_is_pruned(pruner, costs, others, expected):
    assert Optuna(9, pruner=pruner).prune(trial(*costs) if costs else Trial({}), others) is expected


@dataclass(frozen=True)
class FixedOrder:
    """A user's search: the values of an axis in a random order, pruned by Optuna or not."""

    pruner: str
    samples: int = 12

    def ask(self, axes, trials):
        order = random.Random(3).sample(axes[0].values, len(axes[0].values))
        return {axes[0].path: order[len(trials)]} if len(trials) < self.samples else None

    def prune(self, trial, others):
        return Optuna(self.samples, pruner=self.pruner).prune(trial, others)


@pytest.fixture
def after_a_look(monkeypatch) -> Callable[[], None]:
    """Waits until the sweep has looked at all that is written."""
    monkeypatch.setattr(adaptive, "WATCH_S", 0.001)
    prune, looks, changed = adaptive._Trials._prune, itertools.count(), threading.Condition()
    last = 0

    def look(trials) -> None:
        nonlocal last
        prune(trials)
        with changed:
            last = next(looks)
            changed.notify_all()

    def wait() -> None:
        with changed:
            before = last  # A look may be under way that began before the last step.
            assert changed.wait_for(lambda: last >= before + 2, timeout=120)

    monkeypatch.setattr(adaptive._Trials, "_prune", look)
    return wait


@pytest.mark.slow
def test_pruning_saves_steps_keeps_the_best_and_is_remembered(tmp_path: Path, after_a_look):
    steps, results = {}, {}
    for pruner in ("none", "median"):
        engine = SyntheticEngine(loss_of, after_step=after_a_look if pruner == "median" else None)
        results[pruner] = swept(tmp_path / pruner, FixedOrder(pruner), engine, ["width=33..63"])
        steps[pruner] = engine.steps
    assert steps["none"] == 12 * CONFIG.steps
    assert steps["median"] == steps["none"] - 5 * (CONFIG.steps - 4), "pruned at the first look after a fifth"
    full, pruned = results["none"].summary, results["median"].summary
    assert pruned["best"] == full["best"]
    assert (full["pruned"], full["finished"]) == ([], 12)
    assert len(pruned["pruned"]) == 5
    assert pruned["finished"] + len(pruned["pruned"]) == 12
    for row in pruned["rows"]:
        assert row["pruned"] is (row["mean"] is None) is (row["steps"] < CONFIG.steps)
    run = Run.open(tmp_path / "median" / f"{pruned['pruned'][0]},seed=0")
    assert run.state == "stopped"
    assert [e["command"] for e in run.events() if e["event"] == "applied"] == ["stop"]
    assert "pruned by the sweep after " in run.story

    engine = SyntheticEngine(loss_of)
    again = swept(tmp_path / "median", FixedOrder("median"), engine, ["width=33..63"])
    assert (engine.started, again.ended) == ([], "finished"), "what was pruned was run again"
    assert again.summary["rows"] == pruned["rows"]
    assert again.summary["pruned"] == pruned["pruned"]


@pytest.mark.slow
def test_a_pruned_trial_starts_no_more_seeds(tmp_path: Path, after_a_look):
    engine = SyntheticEngine(loss_of, after_step=after_a_look)
    result = swept(tmp_path / "x", FixedOrder("median", 8), engine, ["width=33..63"], seeds=2)
    assert result.ended == "finished"
    assert result.summary["pruned"]
    for row in result.summary["rows"]:
        started = sum(name.startswith(f"{row['name']},") for name in engine.started)
        assert started == (1 if row["pruned"] else 2)
        assert row["finished"] == (0 if row["pruned"] else 2)


@pytest.mark.slow
def test_a_stopped_sweep_proposes_what_it_would_have_proposed(tmp_path: Path):
    search = Optuna(12, seed=5, pruner="none")
    whole = swept(tmp_path / "whole", search, SyntheticEngine(loss_of))
    part = swept(tmp_path / "part", search, SyntheticEngine(loss_of, interrupt_after=7))
    assert (part.ended, part.summary["finished"], part.summary["points"]) == ("stopped", 7, 8)
    engine = SyntheticEngine(loss_of)
    rest = swept(tmp_path / "part", search, engine)
    assert rest.ended == "finished"
    assert names(rest) == names(whole)
    assert rest.summary["best"] == whole.summary["best"]
    assert len(engine.started) == 5, "what had finished was run again"


def test_an_interrupted_point_is_finished_before_new_ones(tmp_path: Path):
    search = Optuna(4, seed=5, pruner="none")
    swept(tmp_path / "x", search, SyntheticEngine(loss_of, interrupt_after=2))
    lost = max(tmp_path.glob("x/*,seed=0"), key=lambda folder: Run.open(folder).created)
    events = [line for line in (lost / "events.jsonl").read_text().splitlines() if "finished" not in line]
    (lost / "events.jsonl").write_text("\n".join(events) + "\n")
    engine = SyntheticEngine(loss_of)
    result = swept(tmp_path / "x", search, engine)
    assert engine.started[0] == lost.name
    assert (result.summary["finished"], len(engine.started)) == (4, 3)


def test_a_trial_that_fails_is_reported_and_avoided(tmp_path: Path):
    def loss(settings, done):
        return math.inf if settings["learning_rate"] > 1e-2 else loss_of(settings, done)

    result = swept(tmp_path / "x", Optuna(8, pruner="none"), SyntheticEngine(loss))
    assert result.ended == "failed"
    failed = [row["mean"] is None for row in result.summary["rows"]]
    assert failed == [row["values"]["learning_rate"] > 1e-2 for row in result.summary["rows"]]
    assert len(result.summary["failed"]) == sum(failed) >= 1
    assert (result.summary["points"], result.summary["finished"]) == (8, 8 - sum(failed))


def test_it_avoids_what_has_failed():
    (axis,) = axes("lr=1..2")
    good = [Trial({axis.path: 1 + i / 100}, "finished", 1.0) for i in range(10)]
    bad = [Trial({axis.path: 1.9 + i / 100}, "failed", math.inf) for i in range(10)]
    asked = [Optuna(99, seed).ask([axis], good + bad) for seed in range(10)]
    assert sum(values is not None and values[axis.path] < 1.5 for values in asked) >= 8


def test_it_is_written_and_read(tmp_path: Path):
    search = Optuna(9, seed=2, pruner="halving")
    sweep = Sweep.of("adding", CONFIG, GRID, search=search)
    assert Sweep.from_json(from_json(to_json(sweep.to_json()))) == sweep
    run_sweep(
        dataclasses.replace(sweep, search=Optuna(1, 2)), tmp_path / "x", engine=SyntheticEngine(loss_of)
    )
    assert load_sweep(tmp_path / "x")[0].search == Optuna(1, 2)


def test_it_says_what_it_needs(monkeypatch):
    with pytest.raises(SweepError, match=r"needs the number of combinations to try; write --samples 40"):
        Optuna(0)
    with pytest.raises(SweepError, match=r"needs an option to search over; write --grid lr=1e-4..1e-2:log"):
        Sweep.of("adding", CONFIG, [], search=Optuna(3))
    with pytest.raises(SweepError, match=r"the search Optuna is asked for one combination at a time"):
        Sweep.of("adding", CONFIG, GRID, search=Optuna(3)).rounds()


def test_without_optuna_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "optuna", None)  # So that importing it fails.
    assert main(["sweep", "adding", "--search", "optuna", "--samples", "2", "--grid", "width=1,2"]) == 2
    assert capsys.readouterr().err == (
        "lapwing: the search optuna needs Optuna, which is not installed; write pip install 'lapwing[optuna]', or "
        "--search random\n"
    )
    assert not Path("runs").exists()


@pytest.mark.slow
def test_the_command_searches_and_shows_it(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    small = ["--steps", "3", "--length", "2", "--batch-size", "1", "--laps-every", "0"]
    words = ["--search", "optuna", "--samples", "3", "--grid", "lr=1e-4..1e-2:log"]
    assert main(["sweep", "adding", *small, *words, "--name", "tiny", "--workers", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ended"], told["finished"], told["pruned"]) == ("finished", 3, [])
    assert all(1e-4 <= row["values"]["learning_rate"] <= 1e-2 for row in told["rows"])
    assert main(["sweep", "--resume", "runs/tiny"]) == 0
    assert "3 of 3 points finished in " in capsys.readouterr().out
