"""The rules that every run has, made from its config, and the list that carries the states of all rules."""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lapwing.core import suggestion
from lapwing.task import Rounds, Task

from ._config import ConfigError, FitConfig, Rollback, Schedule, Stop, default_of
from ._rule import (
    LOSS,
    ChangeState,
    Criterion,
    Decided,
    Decision,
    EndRun,
    MarkBest,
    RollBackToBest,
    Rule,
    RuleState,
    SetLearningRate,
    Steps,
    Trend,
    Window,
)


def default_rules(
    task: Task, config: FitConfig, more: Sequence[Rule] = (), learning_rate: float | None = None
) -> list[Rule]:
    """The rules of a run, with those of the user before the rounds, after which all rules start again. `learning_rate`
    is the one that the run starts with."""
    criterion = Criterion(config.best, config.mode)
    rules = [Best(criterion), Divergence(config.rollback), EarlyStop(config.stop, criterion), *more]
    if config.schedule.kind == "plateau":
        rules.insert(2, Plateau(config.schedule, learning_rate or config.learning_rate, criterion))
    if task.rounds is not None:
        rules.append(TakeRounds(task.rounds, config.steps_per_call))
    return rules


def check_metrics(
    config: FitConfig, steps: Collection[str] | None, evaluations: Collection[str] | None
) -> None:
    """Raises `ConfigError` if `best` or `stop.metric` is not among the metrics of the steps or of the evaluations; None
    if these are not known. A `stop.metric` that is an experiment's default may be missing for some of its options.

    >>> check_metrics(FitConfig(best="eval_acuracy", evaluate_every=10), ["loss"], ["eval_accuracy"])
    Traceback (most recent call last):
    lapwing.train._config.ConfigError: best should be a metric, but is 'eval_acuracy'; did you mean eval_accuracy?
    """
    asked = {"best": config.best, "stop.metric": config.stop.metric}
    if config.stop.metric == default_of(config, "stop").metric:
        del asked["stop.metric"]
    for option, name in asked.items():
        known = evaluations if name.startswith("eval_") else steps
        if known is not None and name not in known:
            instead = suggestion(name, known) if known else "the task has no evaluate"
            raise ConfigError(f"{option} should be a metric, but is {name!r}; {instead}")


@dataclass(frozen=True)
class Best(Rule):
    """The best value of the metric that decides has the best parameters."""

    criterion: Criterion = LOSS

    def on_window(self, state: RuleState, window: Window) -> Decided:
        return state, [] if self.criterion.is_evaluation else self._mark(window)

    def on_evaluation(self, state: RuleState, window: Window) -> Decided:
        return state, self._mark(window) if self.criterion.is_evaluation else []

    def _mark(self, window: Window) -> list[Decision]:
        return [MarkBest()] if window.trend.best_step == window.done else []


@dataclass(frozen=True)
class Divergence(Rule):
    """Rolls back when the loss is not finite, too many updates in a row are skipped, the loss is far above its best or
    the gradient norm far above its usual size. The state counts the steps in a row for which that is so."""

    config: Rollback

    def init(self, step: int) -> RuleState:
        return {"skipped": 0, "above": 0}

    def on_steps(self, state: RuleState, steps: Steps) -> tuple[RuleState, RollBackToBest | None]:
        config, trend = self.config, steps.trend
        losses, norms = (np.asarray(steps.metrics[name], np.float64) for name in ("loss", "gradient_norm"))
        skipped, last_skipped = _in_a_row(steps.metrics["skipped"] != 0, state["skipped"])
        above, last_above = _in_a_row(losses > _too_high(trend.lowest, config.factor), state["above"])
        high = f"the loss was above {config.factor:g} times its best ({trend.lowest:.4g}) for {config.patience} steps"
        found = {
            "the loss was not finite": ~np.isfinite(losses),
            f"no update was finite for {config.patience} steps": skipped >= config.patience,
            high: above >= config.patience,
            f"the gradient was above {config.spike:g} times its usual norm ({trend.gradient_norm:.4g})": norms
            > trend.gradient_norm * config.spike,
        }
        firsts = {reason: int(where.argmax()) for reason, where in found.items() if where.any()}
        reason = min(firsts, key=firsts.__getitem__, default=None)
        rollback = (
            None if reason is None else RollBackToBest(steps.first + firsts[reason], reason, config.cut)
        )
        return {"skipped": last_skipped, "above": last_above}, rollback

    def on_rollback(self, state: RuleState, then: RuleState, step: int) -> RuleState:
        return self.init(step)  # The data are new, so nothing continues.


@dataclass(frozen=True)
class Plateau(Rule):
    """Cuts the learning rate when there has been no new best for some steps. The state is the step of the last cut."""

    config: Schedule
    learning_rate: float
    criterion: Criterion = LOSS

    def init(self, step: int) -> RuleState:
        return step

    def on_window(self, state: RuleState, window: Window) -> Decided:
        return (state, []) if self.criterion.is_evaluation else self._decide(state, window)

    def on_evaluation(self, state: RuleState, window: Window) -> Decided:
        return self._decide(state, window) if self.criterion.is_evaluation else (state, [])

    def _decide(self, state: RuleState, window: Window) -> Decided:
        config = self.config
        if window.done - max(state, window.trend.best_step) < config.patience:
            return state, []
        learning_rate = max(window.learning_rate * config.cut, self.learning_rate * config.floor)
        reason = f"no better {self.criterion.metric} for {config.patience} steps"
        return window.done, [SetLearningRate(learning_rate, reason)]


@dataclass(frozen=True)
class EarlyStop(Rule):
    """Ends the run by `config.stop`. What depends on an evaluation is decided after one, the rest at a window's end."""

    config: Stop
    criterion: Criterion = LOSS

    def on_window(self, state: RuleState, window: Window) -> Decided:
        return state, self._ends(window, after_evaluation=False)

    def on_evaluation(self, state: RuleState, window: Window) -> Decided:
        return state, self._ends(window, after_evaluation=True)

    def _ends(self, window: Window, after_evaluation: bool) -> list[Decision]:
        config, criterion, trend = self.config, self.criterion, window.trend
        since = window.done - trend.best_step
        if criterion.is_evaluation == after_evaluation and 0 < config.patience <= since:
            known = f"than the {trend.best:.4g} of step {trend.best_step}"
            return [
                EndRun(f"no better {criterion.metric} {known if after_evaluation else f'for {since} steps'}")
            ]
        if config.metric.startswith("eval_") == after_evaluation:
            value = window.metrics.get(config.metric, math.nan)
            if value < config.below or value > config.above:
                return [EndRun(f"{config.metric} is {value:.6g}")]
        return []


class TakeRounds(Rule):
    """Lets the task change parameters and optimizer state after each of its rounds."""

    def __init__(self, rounds: Rounds, steps_per_call: int):
        self.rounds, self.every = rounds, rounds.every
        if rounds.every % steps_per_call:
            raise ConfigError(
                f"steps_per_call should divide the {rounds.every} steps of a round, but is {steps_per_call}"
            )

    def on_window(self, state: RuleState, window: Window) -> Decided:
        return state, [] if window.done % self.every else [ChangeState(self.rounds.turn)]


class Rules:
    """The rules of a run with their states, and the trend that they share."""

    def __init__(self, rules: Sequence[Rule], config: FitConfig):
        self._rules = {type(rule).__name__: rule for rule in rules}
        if len(self._rules) < len(rules):
            names = [type(rule).__name__ for rule in rules]
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"two rules are called {twice}, but checkpoints know rules by name; rename one")
        self._config, self._criterion = config, Criterion(config.best, config.mode)
        self._steps, self._smooth = config.steps, config.smooth
        self._length = _window(config.log_every, config)
        self._windows = {
            name: _window(rule.every or config.log_every, config) for name, rule in self._rules.items()
        }
        self.lengths = {self._length, *self._windows.values()}
        self.start(0)

    def start(self, step: int, skipped: int = 0) -> None:
        """As at the beginning: no loss before `step` says anything about what follows."""
        self.trend = Trend(best_step=step, skipped=skipped)
        self._states = {name: rule.init(step) for name, rule in self._rules.items()}

    def on_steps(self, first: int, metrics: Mapping[str, np.ndarray]) -> RollBackToBest | None:
        """Shows the metrics of some steps to all rules, up to the first one that causes a rollback."""
        check_metrics(self._config, metrics, None)
        steps = Steps(first, metrics, self.trend)
        states, rollback = self._after(steps)
        if rollback:
            steps = steps.until(rollback.step + 1)
            states, rollback = self._after(steps)  # As if the metrics ended there.
        self._states, self.trend = states, self.trend.with_steps(steps.metrics, self._criterion)
        return rollback

    def _after(self, steps: Steps) -> tuple[dict[str, RuleState], RollBackToBest | None]:
        after = {name: rule.on_steps(self._states[name], steps) for name, rule in self._rules.items()}
        found = [rollback for _, rollback in after.values() if rollback]
        earliest = min(found, key=lambda rollback: rollback.step, default=None)
        return {name: state for name, (state, _) in after.items()}, earliest

    def window_ends(self, done: int) -> bool:
        """Whether `on_window` of some rule is due after `done` steps."""
        return any(self._ends(length, done) for length in self.lengths)

    def on_window(self, done: int, metrics: Mapping[str, float], learning_rate: float) -> list[Decision]:
        if self._ends(self._length, done):
            self.trend = self.trend.end_window(done, self._smooth, self._criterion)
        due = [name for name, length in self._windows.items() if self._ends(length, done)]
        return self._decide("on_window", due, self._window(done, metrics, learning_rate))

    def on_evaluation(self, done: int, metrics: Mapping[str, float], learning_rate: float) -> list[Decision]:
        check_metrics(self._config, None, metrics)
        if self._criterion.is_evaluation:
            value = metrics[self._criterion.metric]
            self.trend = self.trend.after_evaluation(done, value, self._criterion)
        return self._decide("on_evaluation", self._rules, self._window(done, metrics, learning_rate))

    def _window(self, done: int, metrics: Mapping[str, float], learning_rate: float) -> Window:
        return Window(done, {**metrics, "loss": self.trend.loss}, self.trend, learning_rate)

    def _decide(self, method: str, names: Any, window: Window) -> list[Decision]:
        decisions: list[Decision] = []
        for name in names:
            self._states[name], more = getattr(self._rules[name], method)(self._states[name], window)
            decisions += more
        return decisions

    def _ends(self, length: int, done: int) -> bool:
        return done % length == 0 or done == self._steps

    @property
    def best_in_words(self) -> str:
        """What is best so far, for people; empty before the first."""
        if not math.isfinite(self.trend.best):
            return ""
        name = "" if self._criterion.metric == "loss" else f"{self._criterion.metric} "
        return f"best {name}{self.trend.best:.4g}"

    def to_json(self) -> dict[str, Any]:
        return {"trend": asdict(self.trend), "rules": dict(self._states)}

    def restore(self, record: Mapping[str, Any], step: int) -> None:
        """Continues with the states of a checkpoint after `step` steps; a rule that it lacks starts there."""
        self.trend, self._states = self._read(record, step)

    def forget_best(self, step: int) -> None:
        """The best parameters are lost: those after `step` steps are the first of a new search."""
        self.trend = dataclasses.replace(self.trend, best=math.nan, best_step=step)

    def roll_back(self, record: Mapping[str, Any], step: int) -> None:
        """The run returns to `step`, where the states were those of a checkpoint."""
        trend, states = self._read(record, step)
        self.trend = self.trend.rolled_back(trend, step, self._criterion)
        self._states = {
            name: rule.on_rollback(self._states[name], states[name], step)
            for name, rule in self._rules.items()
        }

    def _read(self, record: Mapping[str, Any], step: int) -> tuple[Trend, dict[str, RuleState]]:
        saved = record["rules"]
        states = {
            name: saved[name] if name in saved else rule.init(step) for name, rule in self._rules.items()
        }
        trend = record["trend"]
        return Trend(**{"lowest": trend["best"], **trend}), states


def _window(every: int, config: FitConfig) -> int:
    """Windows end where a call does, so they may be longer than asked for."""
    return -(-every // config.steps_per_call) * config.steps_per_call


def _too_high(best: float, factor: float) -> float:
    """Above the best, measured by its size, so that it also works for a negative loss."""
    return best + (factor - 1) * abs(best) if math.isfinite(best) else math.inf


def _in_a_row(holds: np.ndarray, before: int) -> tuple[np.ndarray, int]:
    """At each step, for how many steps in a row it has held; `before` is the number before the first.

    >>> _in_a_row(np.array([True, True, False, True]), 3)
    (array([4, 5, 0, 1]), 1)
    """
    at = np.arange(1, len(holds) + 1)
    counts = at - np.maximum.accumulate(np.where(holds, -before, at))
    return counts, int(counts[-1]) if len(counts) else before
