"""Optuna's search on real processes, which are killed in the middle."""

import json
import os
import signal
from pathlib import Path

import pytest

from lapwing.cli import main
from lapwing.journal import Run, run_folders

from .test_run import TINY, start, steps_of, wait_for

pytest.importorskip("optuna", reason="Optuna is not installed")
pytestmark = pytest.mark.slow

SAMPLES = 12
STEPS = 4000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_search_that_is_stopped_or_killed_continues_and_prunes(tmp_path: Path, monkeypatch, capsys, number):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    words = ["--search", "optuna", "--samples", str(SAMPLES), "--grid", "lr=1e-7..1e-2:log", "--name", "x"]
    sweep = start("adding", *TINY, "--steps", str(STEPS), "--log-every", "10", *words, "--workers", "2")

    def states() -> list[str]:
        return [run.state for run in map(Run.open, run_folders("runs"))]

    wait_for(lambda: states().count("finished") >= 2, 120.0)
    os.kill(sweep.pid, number)
    sweep.communicate(timeout=60)
    wait_for(lambda: "running" not in states())
    before = {run.name: run.events() for run in map(Run.open, run_folders("runs")) if run.state == "finished"}

    assert main(["sweep", "--resume", "runs/x", "--workers", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ended"], told["points"]) == ("finished", SAMPLES)
    assert told["finished"] + len(told["pruned"]) == SAMPLES
    assert told["pruned"], "half of these learning rates are far too small, and none was pruned"
    best = next(row for row in told["rows"] if row["name"] == told["best"])
    assert best["values"]["learning_rate"] > 1e-5
    for run in map(Run.open, run_folders("runs")):
        assert steps_of(run) == list(range(len(steps_of(run))))
        assert before.get(run.name, run.events()) == run.events(), "a finished point was run again"


@pytest.mark.filterwarnings("ignore")
def test_it_searches_on_a_cluster(tmp_path: Path, monkeypatch, capsys):
    pytest.importorskip("ray", reason="Ray is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    words = ["--search", "optuna", "--samples", "5", "--grid", "lr=1e-4..1e-2:log", "--engine", "ray"]
    assert main(["sweep", "adding", *TINY, "--steps", "20", *words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ended"], told["finished"]) == ("finished", 5)
    assert len({row["name"] for row in told["rows"]}) == 5
