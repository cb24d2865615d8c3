"""The benchmark of repairs: what it breaks, what it writes, and that it continues where it was stopped."""

import json
import threading
import time
from collections import Counter

import jax
import pytest

from benchmarks import repair as bench
from lapwing.bench.measure import BenchError

SMALL = {"machines": ("oscillator",), "count": 3, "rows": 16, "attempts": 2}


def test_the_damage_is_spread_over_kinds_and_numbers_of_links():
    plan = bench.damages(bench.Config())
    assert list(plan) == list(bench.HANDMADE)
    every = [damage for damages in plan.values() for damage in damages]
    assert len(every) == 100
    assert min(Counter(every).values()) >= 10
    assert all(len(set(damages)) == len(damages) for damages in plan.values())


def test_machines_are_repaired_written_shown_and_not_repaired_again(tmp_path, capsys, monkeypatch):
    config = bench.Config(**SMALL, out=str(tmp_path))
    results = bench.run(config)
    assert [row["repaired"] for row in results["rows"]].count(True) >= 2
    assert all(0 < row["compiling_of_group"] < row["seconds_of_group"] for row in results["rows"])
    assert json.loads((tmp_path / "repair-seed-1-cpu.json").read_text()) == results
    bench.show(results)
    shown = capsys.readouterr().out
    assert "oscillator" in shown
    assert "of 3, " in shown
    assert " s to compile, " in shown
    monkeypatch.setattr(bench, "repair_group", lambda *_: pytest.fail("it is done"))
    assert bench.run(config) == results


def test_a_function_that_is_traced_inside_of_another_counts_once():
    def slow(x):
        time.sleep(0.1)
        return x + 1

    inner = jax.jit(slow)
    begin = time.perf_counter()
    with bench.compilations() as found:
        jax.jit(lambda x: inner(x) * 2).lower(1.0)
    assert 0.1 < sum(found) <= time.perf_counter() - begin
    with bench.compilations() as found:
        thread = threading.Thread(target=lambda: jax.jit(lambda x: slow(x) * 3).lower(1.0))
        thread.start()
        thread.join()
    assert sum(found) == 0


def test_ctrl_c_keeps_what_is_done(tmp_path, monkeypatch, capsys):
    def group(name, plan, config, stop):
        if name == "wave":
            raise KeyboardInterrupt
        return [{"machine": name, "repaired": True}]

    monkeypatch.setattr(bench, "repair_group", group)
    config = bench.Config(machines=("parity", "wave"), count=2, out=str(tmp_path))
    results = bench.run(config)
    assert results["rows"] == [{"machine": "parity", "repaired": True}]
    assert "the same command continues" in capsys.readouterr().err


def test_a_wrong_option_gets_one_sentence():
    with pytest.raises(BenchError, match="not 'pariti'"):
        bench.run(bench.Config(machines=("pariti",)))
    with pytest.raises(BenchError, match="count should be at least 1, but is 0"):
        bench.run(bench.Config(count=0))
