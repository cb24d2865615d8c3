"""Rules decide by the metrics of the steps alone: in whatever pieces these arrive, and after any resumption."""

import json
import math
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lapwing.journal import Run
from lapwing.task import Rounds, Turn
from lapwing.train import (
    ConfigError,
    EndRun,
    FitConfig,
    MarkBest,
    Rollback,
    RollBackToBest,
    Rule,
    Schedule,
    SetLearningRate,
    Stop,
    Trend,
    fit,
)
from lapwing.train._rules import Best, Divergence, EarlyStop, Plateau, Rules, TakeRounds
from tests.slow import some

from .tasks import line, same_bits

WINDOW = 8
CONFIG = FitConfig(steps=10**6, log_every=WINDOW, smooth=5)


class TooLong(Rule):
    """A rule of a user: rolls back after 3 losses in a row above 5, and ends the run after two such accidents."""

    def init(self, step):
        return {"high": 0, "accidents": 0}

    def on_steps(self, state, steps):
        high, accidents = state["high"], state["accidents"]
        for at, loss in enumerate(steps.metrics["loss"].tolist()):
            high = high + 1 if loss > 5 else 0
            if high == 3:
                rollback = RollBackToBest(steps.first + at, "the loss was high", cut=0.5)
                return {"high": 0, "accidents": accidents + 1}, rollback
        return {"high": high, "accidents": accidents}, None

    def on_window(self, state, window):
        return state, [EndRun("too many accidents")] if state["accidents"] >= 2 else []

    def on_rollback(self, state, then, step):
        return {"high": 0, "accidents": state["accidents"]}


def turn(params, optimizer):
    return Turn(params, optimizer, "", {})


ROLLBACK = Rollback(factor=2.0, patience=3, spike=10.0)
RULES = [
    Best(),
    Divergence(ROLLBACK),
    Plateau(Schedule("plateau", patience=20, floor=0.1), 0.1),
    EarlyStop(Stop(patience=50, below=0.1)),
    TakeRounds(Rounds(16, turn), 1),
    TooLong(),
]
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)


def steps_of(losses, norms=None, skipped=None) -> dict[str, np.ndarray]:
    losses = np.asarray(losses, float)
    ones = np.ones(len(losses))
    return {
        "loss": losses,
        "gradient_norm": ones if norms is None else np.asarray(norms, float),
        "skipped": 0 * ones if skipped is None else np.asarray(skipped, float),
    }


def through_json(rules: Rules) -> dict:
    return json.loads(json.dumps(rules.to_json()))


def drive(rule: Rule, losses, pieces, *, resume: bool) -> list:
    """All decisions of a rule over a run with these losses, which come in these pieces; a rollback ends it. With
    `resume`, another object continues from JSON after each piece."""
    rules, decisions, done = Rules([rule], CONFIG), [], 0
    for size in [*pieces, len(losses)]:
        while size and done < len(losses):
            count = min(size, WINDOW - done % WINDOW, len(losses) - done)
            if found := rules.on_steps(done, steps_of(losses[done : done + count])):
                return [*decisions, found, through_json(rules)]
            done, size = done + count, size - count
            if rules.window_ends(done):
                decisions += [(done, decision) for decision in rules.on_window(done, {}, 0.1)]
                metrics = {"eval_height": float(losses[done - 1])}
                decisions += [(done, decision) for decision in rules.on_evaluation(done, metrics, 0.1)]
        if resume:
            saved = through_json(rules)
            rules = Rules([rule], CONFIG)
            rules.restore(saved, done)
    return [*decisions, through_json(rules)]


@each_rule
@example([1.0] * 8 + [7.0] * 5, [9, 2, 5], True)  # Something that lasts across the border of two pieces.
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from([0.5, 1.0, 1.0, 1.0, 2.0, *[7.0] * 6, math.nan]), min_size=1, max_size=60),
    st.lists(st.integers(1, 10), min_size=1, max_size=30),
    st.booleans(),
)
def test_resumed_is_the_same_as_uninterrupted_whatever_the_pieces(rule, losses, pieces, resume):
    whole = drive(rule, losses, [], resume=False)
    assert str(drive(rule, losses, pieces, resume=resume)) == str(whole)


@each_rule
def test_each_rule_decides_something(rule):
    """So that the comparison above compares something."""
    wave = [5.5 if step % 16 < 3 else 1.0 for step in range(400)]
    found = [drive(rule, losses, [7] * 60, resume=False)[:-1] for losses in ([2.0, 1.0] * 200, wave)]
    assert any(found)


@each_rule
def test_a_state_that_was_rolled_back_is_json_and_runs_on(rule):
    rules = Rules([rule], CONFIG)
    then = None
    for done in range(WINDOW, 5 * WINDOW, WINDOW):
        rules.on_steps(done - WINDOW, steps_of([1.0 / done] * WINDOW))
        rules.on_window(done, {"eval_height": 1.0}, 0.1)
        then = then or through_json(rules)
    assert then
    rules.roll_back(then, WINDOW)
    assert rules.trend.best_step == WINDOW
    again = Rules([rule], CONFIG)
    again.restore(through_json(rules), WINDOW)
    assert str(again.to_json()) == str(rules.to_json())
    assert rules.on_steps(WINDOW, steps_of([0.1] * WINDOW)) is None


def test_two_rules_of_one_name_are_refused():
    with pytest.raises(
        ConfigError, match="two rules are called Best, but checkpoints know rules by name; rename one"
    ):
        Rules([Best(), Best()], CONFIG)


def test_a_rule_that_a_checkpoint_lacks_starts_at_its_step():
    saved = Rules([Best()], CONFIG).to_json()
    rules = Rules([Best(), Plateau(Schedule("plateau"), 0.1)], CONFIG)
    rules.restore(saved, 40)
    assert rules.to_json()["rules"]["Plateau"] == 40


# The trend.


def after(*windows, smooth=1, trend=None) -> Trend:
    trend, done = trend or Trend(), 0
    for losses in windows:
        done += len(losses)
        trend = trend.with_steps(steps_of(losses)).end_window(done, smooth)
    return trend


def test_the_best_is_the_lowest_smoothed_loss():
    bests, trend = [], Trend()
    rules = Rules([Best()], FitConfig(steps=1000, log_every=50, smooth=1))
    for done, loss in enumerate([5.0, 3.0, 4.0, 1.0, 2.0], start=1):
        rules.on_steps(50 * (done - 1), steps_of([loss] * 50))
        bests.append(rules.on_window(50 * done, {}, 0.1))
    assert bests == [[MarkBest()], [MarkBest()], [], [MarkBest()], []]
    trend = rules.trend
    assert (trend.best, trend.best_step) == (1.0, 200)


def test_smoothing_takes_about_as_long_as_asked():
    assert after([1.0] * 10, *[[0.0] * 10] * 10, smooth=100).loss == pytest.approx(math.exp(-1), rel=1e-6)


def test_a_first_window_that_rises_is_not_the_best():
    """The learning rate is far too high: the initial parameters are what to return to."""
    trend = after([1.0, 2.0, 5.0, 9.0], smooth=100)
    assert (trend.best, trend.best_step) == (1.5, 0)
    back = trend.rolled_back(Trend(), 0)
    assert (back.loss, back.best, back.best_step, back.losses) == (1.5, 1.5, 0, [])


def test_a_rollback_forgets_the_best_of_later_steps():
    early, late = after([2.0] * 10), after([2.0] * 10, [1.0] * 10)
    assert (late.rolled_back(early, 15).best, late.rolled_back(late, 25).best) == (2.0, late.best)


# Divergence.


def diverge(losses, *, best=(), first=10, config=ROLLBACK, **more):
    rules = Rules([Divergence(config)], FitConfig(steps=1000, log_every=10, rollback=config))
    rules.trend = after(*best, smooth=100)
    return rules.on_steps(first, steps_of(losses, **more)), rules


USUAL = [[1.0] * 10]


@pytest.mark.parametrize(
    ("config", "losses", "more", "best", "expected"),
    [
        (ROLLBACK, [1.0, 2.0, math.inf, math.nan], {}, USUAL, (12, "the loss was not finite")),
        (ROLLBACK, [5.0, 5.0, 1.0, 5.0, 5.0], {}, USUAL, None),
        (
            ROLLBACK,
            [1.0, 5.0, 5.0, 5.0],
            {},
            USUAL,
            (13, "the loss was above 2 times its best (1) for 3 steps"),
        ),
        (Rollback(factor=3.0, patience=1), [0.9], {}, [[-1.0] * 10], None),
        (
            Rollback(factor=3.0, patience=1),
            [1.1],
            {},
            [[-1.0] * 10],
            (10, "the loss was above 3 times its best (-1) for 1 steps"),
        ),
        (
            ROLLBACK,
            [1.0, 1.0],
            {"norms": [9.0, 11.0]},
            USUAL,
            (11, "the gradient was above 10 times its usual norm (1)"),
        ),
        (ROLLBACK, [1.0, 100.0], {"norms": [1.0, 100.0]}, [], None),
        (
            ROLLBACK,
            [1.0, math.nan],
            {"norms": [99.0, 1.0]},
            USUAL,
            (10, "the gradient was above 10 times its usual norm (1)"),
        ),
        (ROLLBACK, [1.0] * 4, {"skipped": [1, 1, 0, 1]}, USUAL, None),
        (ROLLBACK, [1.0] * 4, {"skipped": [0, 1, 1, 1]}, USUAL, (13, "no update was finite for 3 steps")),
    ],
)
def test_what_is_a_divergence_and_at_which_step(config, losses, more, best, expected):
    found, _ = diverge(losses, best=best, config=config, **more)
    assert found == (None if expected is None else RollBackToBest(*expected, config.cut))


def test_skipped_updates_are_counted_up_to_the_rollback():
    found, rules = diverge([1.0] * 6, skipped=[1, 0, 1, 1, 1, 1])
    assert found is not None
    assert (found.step, rules.trend.skipped) == (14, 4)


def test_the_first_rollback_counts_and_no_rule_sees_the_steps_after_it():
    rules = Rules([Divergence(ROLLBACK), TooLong()], FitConfig(steps=100, log_every=10))
    found = rules.on_steps(0, steps_of([1.0, 6.0, 6.0, 6.0, math.nan]))
    assert found == RollBackToBest(3, "the loss was high", 0.5)
    assert rules.to_json()["rules"]["TooLong"]["accidents"] == 1
    assert rules.trend.losses == [1.0, 6.0, 6.0, 6.0]


# Plateau, early stop.


def test_a_plateau_is_cut_after_its_patience_and_again_after_another():
    plateau = Plateau(Schedule("plateau", patience=100, floor=0.3), 0.1)
    rules, cuts, learning_rate = Rules([plateau], FitConfig(steps=1000, log_every=50, smooth=1)), {}, 0.1
    for done in range(50, 501, 50):
        rules.on_steps(done - 50, steps_of([1.0] * 50))
        for decision in rules.on_window(done, {}, learning_rate):
            assert isinstance(decision, SetLearningRate)
            cuts[done] = learning_rate = decision.learning_rate
    assert cuts == pytest.approx({150: 0.05, 250: 0.03, 350: 0.03, 450: 0.03})


@pytest.mark.parametrize(("done", "ends"), [(149, []), (150, [EndRun("no better loss for 50 steps")])])
def test_the_loss_has_stalled(done, ends):
    rules = Rules([EarlyStop(Stop(patience=50))], FitConfig(steps=1000, log_every=1))
    rules.trend = Trend(loss=1.0, best=1.0, best_step=100)
    assert rules.on_window(done, {}, 0.1) == ends


# A rule of the user, in a run.


class EveryFewSteps(Rule):
    """Halves the learning rate at each of its windows, counts them, and calls the last state the best."""

    every = 4

    def init(self, step):
        return {"windows": 0}

    def on_window(self, state, window):
        count = state["windows"] + 1
        if count == 5:
            return {"windows": count}, [EndRun(f"{count} windows, loss {window.metrics['loss']:.2g}")]
        return {"windows": count}, [MarkBest(), SetLearningRate(window.learning_rate / 2, "a window ended")]


OPTIONS = {"learning_rate": 0.1, "laps_every": 0, "log_every": 5, "steps": 40}


def test_a_rule_of_the_user_is_obeyed():
    result = fit(line(), FitConfig(**OPTIONS), rules=[EveryFewSteps()], quiet=True)
    assert result.outcome.startswith("5 windows, loss ")
    halved = np.repeat([0.1, 0.05, 0.025, 0.0125, 0.00625], 4)
    np.testing.assert_allclose(result.metrics["effective_learning_rate"], halved, rtol=1e-6)


def test_a_rule_of_the_user_rolls_back_and_at_most_as_often_as_the_config_allows():
    class Never(Rule):
        def on_steps(self, state, steps):
            return state, RollBackToBest(max(steps.first, 7), "I say so") if 7 in steps_seen(steps) else None

    def steps_seen(steps):
        return range(steps.first, steps.first + len(steps.metrics["loss"]))

    config = FitConfig(**OPTIONS, rollback=Rollback(times=2))
    result = fit(line(), config, rules=[Never()], quiet=True)
    assert (result.ended, result.rollbacks) == ("failed", 2)
    assert result.outcome.startswith("I say so at step 7 after 2 rollbacks; ")


@pytest.mark.parametrize("stopped_at", some([6, 8], 0))
def test_a_rule_of_the_user_is_resumed(monkeypatch, tmp_path: Path, stopped_at: int):
    def evaluate(params, key):
        jax.debug.callback(at_evaluation)
        return {}

    task = line(evaluate=evaluate)
    config = FitConfig(**OPTIONS, evaluate_every=stopped_at - 1)
    at_evaluation = list
    whole = fit(task, config, rules=[EveryFewSteps()], quiet=True)
    monkeypatch.setattr("lapwing.train._fit._UNATTENDED_S", -1.0)  # Commands are read after every call.
    with Run.create("line", runs_dir=tmp_path) as run:
        at_evaluation = lambda: Run.open(run.folder).post("stop")  # noqa: E731
        stopped = fit(task, config, run, rules=[EveryFewSteps()], quiet=True)
    assert int(stopped.state.step) == stopped_at
    at_evaluation = list
    with Run.reopen(run.folder) as again:
        resumed = fit(task, config, again, rules=[EveryFewSteps()], quiet=True)
    assert same_bits(resumed.metrics, whole.metrics)
    assert same_bits(resumed.state, whole.state)
