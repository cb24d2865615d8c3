import json
from pathlib import Path

import pytest

from benchmarks import sweep as bench


@pytest.mark.slow
def test_workers_are_timed_against_one_after_the_other(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    bench.show(bench.run(bench.Config(parts=("workers",), rounds=1, adding_steps=200, out=str(tmp_path))))
    told = json.loads((tmp_path / "sweep-cpu.json").read_text())
    row = told["workers"]
    one, two = row["ways"].values()
    assert row["faster"] == pytest.approx(one["seconds"] / two["seconds"])
    assert "adding, 4 points: one after the other" in capsys.readouterr().out


@pytest.mark.slow
def test_a_step_of_a_population_is_timed_against_steps_of_one(capsys):
    told = bench.run(bench.Config(parts=("steps",), machines_at_once=("2",), thinkers_at_once=(), out=""))
    (row,) = told["steps"]
    assert row["faster"] == pytest.approx(2 * row["one_s"] / row["together_s"])
    bench.show(told)
    assert "dmm-lite: a step of one" in capsys.readouterr().out
