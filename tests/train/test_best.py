"""What is best, by a metric of the user's choice: kept, returned to, waited for, and said at the end."""

import dataclasses
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing import check
from lapwing.journal import Run
from lapwing.train import (
    Checkpoints,
    ConfigError,
    Criterion,
    EndRun,
    FitConfig,
    MarkBest,
    Rollback,
    Schedule,
    Stop,
    Trend,
    config_from,
    fit,
)
from lapwing.train._rules import Best, EarlyStop, Rules

from .tasks import line, same_bits
from .test_rules import steps_of

HEIGHT = {"best": "eval_height", "mode": "max", "evaluate_every": 5}
OPTIONS = {"learning_rate": 0.1, "laps_every": 0, "log_every": 5, "smooth": 5}


def hill(**changes):
    """b falls by 0.1 a step; the evaluation rises to step 20 and falls from there on, the loss always falls."""
    return line(
        init=lambda key: {"w": jnp.zeros(3), "b": jnp.float32(0.5)},
        loss=lambda params, batch: (1.0 + params["b"], {"depth": -params["b"]}),
        optimizer=optax.sgd,
        evaluate=lambda params, key: {"height": -jnp.abs(params["b"] + 1.5)},
        **changes,
    )


def train(task=None, run=None, **options):
    return fit(task or hill(), FitConfig(**{**OPTIONS, "steps": 2000, **options}), run, quiet=True)


def test_stopping_when_an_evaluation_rises_no_more(tmp_path: Path):
    """A resumed run remembers when the best was."""
    options = {**HEIGHT, "stop": Stop(patience=15)}
    result = train(**options)
    assert result.outcome.startswith("no better eval_height than the ")
    assert "best eval_height" in result.outcome
    assert result.outcome.endswith("at step 20")
    assert (int(result.state.step), result.best_step) == (35, 20)
    assert result.best == pytest.approx(0.0, abs=1e-5)
    with Run.create("line", runs_dir=tmp_path) as run:
        train(run=run, **options, steps=27)
    with Run.reopen(run.folder) as again:
        config = FitConfig(**OPTIONS, steps=2000, **options)
        resumed = fit(hill(), config, again, quiet=True, allow_change=True)
    assert (int(resumed.state.step), resumed.best_step) == (35, 20)
    assert same_bits(resumed.state, result.state)


def test_the_best_by_an_evaluation_is_kept(tmp_path: Path):
    with Run.create("line", runs_dir=tmp_path) as run:
        train(run=run, steps=33, **HEIGHT)
    checkpoints = Checkpoints(run.folder / "checkpoints")
    last = checkpoints.all()[-1]
    best = checkpoints.find(last.record["best"])
    assert (last.step, best.step) == (33, 20)
    np.testing.assert_allclose(checkpoints.arrays(best)["params/b"], -1.5, rtol=1e-5)
    end = run.events()[-1]
    assert (end["best_metric"], end["best_step"]) == ("eval_height", 20)


def test_the_last_evaluation_counts_too(tmp_path: Path):
    """The run ends at step 18, where no evaluation was due: the one at the end is the best so far."""
    with Run.create("line", runs_dir=tmp_path) as run:
        result = train(run=run, steps=18, **HEIGHT)
    assert result.best_step == 18
    checkpoints = Checkpoints(run.folder / "checkpoints")
    assert checkpoints.find(checkpoints.all()[-1].record["best"]).step == 18


def test_a_rollback_returns_to_the_best_evaluation():
    def accident(params, batch):
        return jnp.where(params["b"] < -2.75, jnp.nan, 1.0 + params["b"]), {}

    result = train(dataclasses.replace(hill(), loss=accident), steps=44, rollback=Rollback(times=1), **HEIGHT)
    assert result.rollbacks == 1
    # From step 20, where the evaluation was best, and not from the lowest loss, with half of the learning rate.
    np.testing.assert_allclose(result.metrics["effective_learning_rate"], [0.1] * 20 + [0.05] * 24, rtol=1e-6)


@pytest.mark.parametrize(("mode", "best_step"), [("max", 40), ("min", 0)])
def test_another_metric_of_a_step(mode, best_step):
    result = train(steps=40, best="depth", mode=mode)
    assert result.best_step == best_step
    assert result.metrics["depth"].min() - 1e-6 <= result.best <= result.metrics["depth"].max() + 1e-6


def test_patience_of_a_plateau_by_an_evaluation():
    schedule = Schedule("plateau", patience=10)
    rates = train(steps=60, schedule=schedule, **HEIGHT).metrics["effective_learning_rate"]
    # Step 20 is best; the evaluation of step 30 is no better, and the cut comes after it.
    np.testing.assert_allclose(rates[:30], 0.1, rtol=1e-6)
    np.testing.assert_allclose(rates[30], 0.05, rtol=1e-6)


def test_an_evaluation_is_made_before_the_run_stops_for_want_of_a_better_one():
    """At step 40 the patience would be over, but the evaluation of step 40 is a new best."""
    heights = {10: 1.0, 20: 0.5, 30: 0.6, 40: 2.0, 50: 1.5, 60: 1.5, 70: 1.5, 80: 9.0}
    values = jnp.array([heights.get(step, math.nan) for step in range(101)])
    task = line(
        loss=lambda params, batch: (params["b"], {}),
        init=lambda key: {"w": jnp.zeros(3), "b": jnp.float32(0)},
        optimizer=lambda rate: optax.sgd(1.0),
        evaluate=lambda params, key: {"height": values[(-params["b"]).astype(int)]},
    )
    options = {"best": "eval_height", "mode": "max", "evaluate_every": 10, "log_every": 10}
    result = train(task, steps=100, stop=Stop(patience=30), **options)
    assert result.outcome.startswith("no better eval_height than the 2 of step 40; 70 steps")


# Refused before a step is made.


def never(params, batch):
    raise AssertionError("nothing should be traced")


@pytest.mark.parametrize(
    ("options", "task", "message"),
    [
        (
            {**HEIGHT, "best": "eval_heigth"},
            hill(),
            "best should be a metric, but is 'eval_heigth'; did you mean eval_h",
        ),
        (HEIGHT, line(), "best should be a metric, but is 'eval_height'; the task has no evaluate"),
        ({"stop": Stop(metric="eval_x")}, hill(), "stop.metric should be a metric, but is 'eval_x'; "),
        (
            {"stop": Stop(metric="eval_x")},
            line(),
            "stop.metric should be a metric, but is 'eval_x'; the task has no eval",
        ),
    ],
)
def test_an_evaluation_that_is_not_there_is_refused_before_the_first_step(options, task, message):
    with pytest.raises(ConfigError, match=message):
        train(dataclasses.replace(task, loss=never), **options)


def test_a_metric_that_is_not_there_is_refused_by_the_first_look_and_by_the_quick_checks():
    message = "best should be a metric, but is 'distanc'; did you mean distance?"
    with pytest.raises(ConfigError, match=message):
        train(line(), best="distanc")
    with pytest.raises(ConfigError, match=message):
        check.quick(line(), FitConfig(best="distanc"))


def test_without_evaluations_no_evaluation_is_best():
    with pytest.raises(
        ConfigError, match="best should be loss or a metric of a step, as there is no evaluate_every"
    ):
        FitConfig(best="eval_height")


# Options of an earlier version.


def test_options_of_an_earlier_version_are_translated():
    old = {"evaluate_every": 5, "stop": {"rising": "eval_height", "rising_patience": 15, "patience": 0}}
    config = config_from(FitConfig, old)
    assert (config.best, config.mode, config.stop.patience) == ("eval_height", "max", 15)
    old = {"stop": {"rising": "", "rising_patience": 0, "patience": 3}}
    assert config_from(FitConfig, old) == FitConfig(stop=Stop(patience=3))


def test_a_run_whose_config_lacks_new_options_is_resumed(tmp_path: Path):
    with Run.create("line", runs_dir=tmp_path) as run:
        train(run=run, steps=7)
    newest = Checkpoints(run.folder / "checkpoints").all()[-1]
    assert newest.record["config"]["best"] == "loss"
    with Run.reopen(run.folder) as again:
        old = {name: value for name, value in newest.record["config"].items() if name not in ("best", "mode")}
        old["stop"] = {**old["stop"], "rising": "", "rising_patience": 0}
        from lapwing.train._config_json import changes, with_defaults

        assert not changes(with_defaults(old, FitConfig(**OPTIONS, steps=7)), newest.record["config"])
        again.end("finished", "")


# Rules.


def test_the_decisions_about_an_evaluation_come_after_it():
    criterion, stop = Criterion("eval_height", "max"), Stop(patience=10)
    config = FitConfig(steps=1000, log_every=5, **HEIGHT)
    rules, decided = Rules([Best(criterion), EarlyStop(stop, criterion)], config), {}
    for done, height in ((5, 1.0), (10, 3.0), (15, 2.0), (20, math.nan)):
        rules.on_steps(done - 5, steps_of([1.0] * 5))
        assert rules.on_window(done, {}, 0.1) == []
        decided[done] = rules.on_evaluation(done, {"eval_height": height}, 0.1)
    ends = [EndRun("no better eval_height than the 3 of step 10")]
    assert decided == {5: [MarkBest()], 10: [MarkBest()], 15: [], 20: ends}


def test_a_rollback_before_the_first_evaluation_forgets_the_lowest_loss_of_what_is_undone():
    criterion = Criterion("eval_height", "max")
    trend = Trend().with_steps(steps_of([0.5] * 10), criterion).end_window(10, 1, criterion)
    assert trend.lowest == 0.5
    assert math.isnan(trend.rolled_back(Trend(), 0, criterion).lowest)
