"""The benchmark of robustness, small: what is trained, what is written, and that it continues."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import robust
from lapwing.attacks import Mart, Trades
from lapwing.bench.measure import BenchError


def test_a_method_is_written_with_its_objective_and_beta():
    config = robust.Config(source="digits")
    plan = robust.plan_of(config, "replay+trades:3", epochs=2, seed=5)
    assert (plan.method, plan.minimized, plan.seed, plan.steps) == ("replay", Trades(3.0), 5, 2 * 18)
    assert plan.ema == 0.99
    assert plan.attack.steps == 5
    plain = robust.plan_of(config, "pgd", epochs=1, seed=0)
    assert (plain.method, plain.objective, plain.attack.steps) == ("pgd", "cross_entropy", 40)
    other = robust.plan_of(robust.Config(source="digits", norm="l2", ema=0.0), "pgd+mart", 1, 0, steps=7)
    assert (other.minimized, other.ema, other.attack.steps, other.attack.eps) == (Mart(), 0.0, 7, 0.75)


def test_a_method_may_have_options_of_its_own():
    config = robust.Config(source="digits", learning_rate=5e-3)
    plan = robust.plan_of(config, "replay+mart,shift=1,train_eps=1.2,batch_size=30,learning_rate=2e-3", 1, 0)
    assert (plan.shift, plan.batch_size, plan.steps, plan.learning_rate) == (1, 30, 40, 2e-3)
    assert plan.attack.eps == pytest.approx(1.2 * 0.15)
    with pytest.raises(BenchError, match="not 'shfit'"):
        robust.plan_of(config, "replay,shfit=1", 1, 0)
    with pytest.raises(BenchError, match="parts are validation, test, not 'train'"):
        robust.run(robust.Config(source="digits", split="train"))


def test_what_is_written_names_no_place_of_the_machine(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(robust, "_trained", lambda _, __, plan: ({"seed": plan.seed}, None, None))
    monkeypatch.setattr(robust, "plan_of", lambda *of: SimpleNamespace(seed=of[3]))
    small = {"long_epochs": 0, "evaluate": False}
    config = robust.Config(data="some/folder", methods=("natural",), seeds=(0,), out=str(tmp_path), **small)
    robust.run(config)
    (path,) = tmp_path.iterdir()
    assert "folder" not in path.read_text()
    assert str(tmp_path) not in path.read_text()
    again = robust.run(dataclasses.replace(config, data="another", resume=True, seeds=(0, 1)))
    assert len(again["compared"]["natural"]) == 2


def test_a_goal_is_reached_only_by_all_its_numbers():
    row = {"natural": {"accuracy": 0.993}, "robust": {"accuracy": 0.94}, "seconds": 290.0}
    assert robust.goal(row) == "reached: 99.30%, 94.00%, 290 s (asked: 99.2%, 93%, 300 s)"
    for worse in ({"natural": {"accuracy": 0.99}}, {"robust": {"accuracy": 0.92}}, {"seconds": 301.0}):
        assert robust.goal({**row, **worse}).startswith("not reached: ")


def test_a_training_that_is_interrupted_is_not_written(tmp_path: Path, monkeypatch):
    def interrupted(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(ended="preempted", outcome="by SIGTERM, after 3 steps in 1 s")

    monkeypatch.setattr(robust, "fit", interrupted)
    small = {"source": "digits", "methods": ("natural",), "epochs": 1, "long_epochs": 0, "out": str(tmp_path)}
    with pytest.raises(
        BenchError, match="natural, seed 0: ended by SIGTERM, after 3 steps in 1 s; it is not"
    ):
        robust.run(robust.Config(**small))
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_trainings_are_attacked_written_and_kept(tmp_path: Path, capsys):
    def config(**changes) -> robust.Config:
        small = {"source": "digits", "methods": ("replay+trades",), "epochs": 1, "long_epochs": 1, "width": 1}
        attack = {
            "examples": 10,
            "queries": 5,
            "long_steps": 2,
            "seeds": (0, 1),
            "out": str(tmp_path),
            "half": True,
            "surrogate": True,
        }
        return robust.Config(**{**small, **attack, **changes})

    trained = robust.run(config(evaluate=False, weights=str(tmp_path / "weights")))
    assert "robust" not in trained["compared"]["replay+trades"][1]
    with pytest.raises(
        BenchError, match=r"seed 0, is trained, but robustness-digits-replay-trades-1-0\.npz is not"
    ):
        robust.run(config(resume=True))
    results = robust.run(config(resume=True, weights=str(tmp_path / "weights")))
    robust.show(results)
    said = capsys.readouterr().out
    assert "replay+trades" in said
    assert "long: replay+trades" in said
    (path,) = tmp_path.glob("*.json")
    written = json.loads(path.read_text())
    assert [row["seed"] for row in written["long"]] == [0, 1]
    assert list(written["long"][0]["accuracy_after"]) == ["apgd-ce", "apgd-t", "fab-t", "square"]
    assert written["long"][0]["robust"]["count"] == 10
    again = robust.run(config(resume=True, methods=("replay+trades", "natural")))
    assert again["compared"]["replay+trades"] == written["compared"]["replay+trades"]
    assert len(again["compared"]["natural"]) == 2
    with pytest.raises(ValueError, match="was measured with other options; leave out --resume"):
        robust.run(config(resume=True, epochs=2))
