"""Rules: what the host decides from the metrics of a run, and the interface for adding one.

A rule is given metrics and returns decisions as values, which the loop carries out. It holds no state itself: each
method takes the rule's state, a JSON value, and returns the next one. So the state can be saved in a checkpoint,
restored and rolled back, and one rule object can serve many runs.

A decision must depend on the metrics by step alone: not on the clock, and not on the pieces in which `on_steps` gets
them. Then a run that was killed and resumed decides the same at the same steps as one that was not.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from lapwing.task import Turn

RuleState = Any  # What JSON can hold: numbers, texts, None, lists and dicts of them.


class MarkBest(NamedTuple):
    """The parameters now are the best: a rollback returns to them, and a checkpoint keeps them.

    >>> class EveryTenth(Rule):
    ...     '''Keeps the parameters of every tenth step as the best.'''
    ...     def on_window(self, state, window):
    ...         return state, [MarkBest()] if window.done % 10 == 0 else []
    """


class RollBackToBest(NamedTuple):
    """Return to the best parameters because of what happened at `step`, with new data and the learning rate times
    `cut`. After `config.rollback.times` of these the run fails instead.

    >>> RollBackToBest(812, "the loss is 40 times its trend", cut=0.5)
    RollBackToBest(step=812, reason='the loss is 40 times its trend', cut=0.5)
    """

    step: int
    reason: str
    cut: float = 1.0


class SetLearningRate(NamedTuple):
    """From now on train with this learning rate, before the factor of the schedule.

    >>> SetLearningRate(1e-4, "the loss is flat").learning_rate
    0.0001
    """

    learning_rate: float
    reason: str


class EndRun(NamedTuple):
    """No further step; a checkpoint is written.

    >>> EndRun("the loss is flat")
    EndRun(reason='the loss is flat', ended='finished')
    """

    reason: str = ""
    ended: Literal["finished", "stopped", "preempted", "failed"] = "finished"


class ChangeState(NamedTuple):
    """Replace parameters and optimizer state by what `turn` makes of them. All rules start again after it.

    >>> halve = lambda params, optimizer: Turn(params / 2, optimizer, "halved", {})
    >>> ChangeState(halve).turn(np.ones(2), None).params
    array([0.5, 0.5])
    """

    turn: Callable[[Any, Any], Turn]


Decision = MarkBest | RollBackToBest | SetLearningRate | EndRun | ChangeState
Decided = tuple[RuleState, Sequence[Decision]]


class Criterion(NamedTuple):
    """What is best: the lowest or highest value of a metric (`config.best`, `config.mode`)."""

    metric: str = "loss"
    mode: Literal["min", "max"] = "min"

    @property
    def is_evaluation(self) -> bool:
        return self.metric.startswith("eval_")

    def is_better(self, new: float, old: float) -> bool:
        """Whether a value is better than another, or the first one: nan is none.

        >>> Criterion().is_better(1.0, 2.0), Criterion("accuracy", "max").is_better(1.0, math.nan)
        (True, True)
        """
        if math.isnan(new) or math.isnan(old):
            return not math.isnan(new)
        return new < old if self.mode == "min" else new > old

    def best_of(self, known: float, smoothed: float, values: Sequence[float]) -> tuple[float, bool]:
        """The best after a window with these values, and whether it is new. A first window that gets worse is not the
        best: the initial parameters are better than those after it."""
        if not math.isfinite(known) and values:
            half = len(values) // 2
            first, second = _mean(values[:half]), _mean(values[half:])
            known = first if self.is_better(first, second) and not math.isnan(second) else known
        return (smoothed, True) if self.is_better(smoothed, known) else (known, False)


LOSS = Criterion()


@dataclass(frozen=True)
class Trend:
    """Where loss and gradient norm are going: means over about `config.smooth` steps, updated every `log_every` steps.

    `best` is the best value of the metric that decides (`Criterion`), found after `best_step` steps, nan before the
    first; `lowest` is the lowest smoothed loss; `skipped` counts updates that were not finite; `losses`, `norms` and
    `values` are those of the window that has not ended yet. `value` and `values` are of the metric that decides, if it
    is one of the steps and not the loss.
    """

    loss: float = math.nan
    gradient_norm: float = math.nan
    best: float = math.nan
    best_step: int = 0
    skipped: int = 0
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    lowest: float = math.nan
    value: float = math.nan
    values: list[float] = field(default_factory=list)

    def with_steps(self, metrics: Mapping[str, np.ndarray], criterion: Criterion = LOSS) -> "Trend":
        is_another = criterion.metric != "loss" and not criterion.is_evaluation
        return dataclasses.replace(
            self,
            losses=self.losses + metrics["loss"].tolist(),
            norms=self.norms + metrics["gradient_norm"].tolist(),
            values=self.values + metrics[criterion.metric].tolist() if is_another else [],
            skipped=self.skipped + int(np.count_nonzero(metrics["skipped"])),
        )

    def end_window(self, done: int, smooth: int, criterion: Criterion = LOSS) -> "Trend":
        weight = -math.expm1(-len(self.losses) / smooth)
        loss = _moved(self.loss, self.losses, weight)
        norm = _moved(self.gradient_norm, self.norms, weight)
        value = _moved(self.value, self.values, weight)
        lowest, _ = LOSS.best_of(self.lowest, loss, self.losses)
        after = Trend(loss, norm, self.best, self.best_step, self.skipped, lowest=lowest, value=value)
        if criterion.is_evaluation:
            return after
        smoothed, values = (loss, self.losses) if criterion.metric == "loss" else (value, self.values)
        best, is_new = criterion.best_of(self.best, smoothed, values)
        return dataclasses.replace(after, best=best, best_step=done if is_new else self.best_step)

    def after_evaluation(self, done: int, value: float, criterion: Criterion) -> "Trend":
        is_new = criterion.is_better(value, self.best)
        return dataclasses.replace(self, best=value, best_step=done) if is_new else self

    def rolled_back(self, then: "Trend", step: int, criterion: Criterion = LOSS) -> "Trend":
        """The trend after a return to `step`, where it was `then`."""
        known = self if self.best_step <= step else then
        lowest = known.best if criterion.metric == "loss" else then.lowest
        return dataclasses.replace(
            then,
            loss=lowest if math.isnan(then.loss) else then.loss,
            gradient_norm=self.gradient_norm,
            best=known.best,
            best_step=known.best_step,
            skipped=self.skipped,
            lowest=lowest,
        )


@dataclass(frozen=True)
class Steps:
    """The metrics of consecutive steps from `first` on, one value per step each, and the trend before their window.
    `metrics["skipped"]` is not 0 where an update was skipped.

    >>> steps = Steps(100, {"loss": np.array([3.0, np.nan, 1.0])}, Trend())
    >>> steps.first + int(np.argmax(np.isnan(steps.metrics["loss"]))), len(steps.until(101).metrics["loss"])
    (101, 1)
    """

    first: int
    metrics: Mapping[str, np.ndarray]
    trend: Trend

    def until(self, step: int) -> "Steps":
        """Those before `step`."""
        metrics = {name: values[: step - self.first] for name, values in self.metrics.items()}
        return Steps(self.first, metrics, self.trend)


@dataclass(frozen=True)
class Window:
    """What is known after `done` steps: the newest value of each metric and evaluation (of the loss, the smoothed
    value), the trend, and the learning rate before the factor of the schedule.

    >>> window = Window(done=100, metrics={"eval_accuracy": 0.9}, trend=Trend(loss=0.6), learning_rate=1e-3)
    >>> window.trend.loss, window.metrics["eval_accuracy"]
    (0.6, 0.9)
    """

    done: int
    metrics: Mapping[str, float]
    trend: Trend
    learning_rate: float


class Rule(Protocol):
    """Decides something about a run. Inherit from it and override what you need; the defaults decide nothing.

    The rule's name in checkpoints is the name of its class; `every` is the number of steps between two calls of
    `on_window`, 0 for `config.log_every`.

    >>> class StopWhenFlat(Rule):
    ...     '''Ends the run when the smoothed loss changed by less than 0.1% in three windows in a row.'''
    ...     def init(self, step):
    ...         return {"last": None, "flat": 0}
    ...     def on_window(self, state, window):
    ...         last, now = state["last"], window.trend.loss
    ...         flat = state["flat"] + 1 if last is not None and abs(now - last) < 1e-3 * abs(last) else 0
    ...         return {"last": now, "flat": flat}, [EndRun("the loss is flat")] if flat == 3 else []
    """

    every: int = 0

    def init(self, step: int) -> RuleState:
        """The state at the start, and after the parameters were replaced at `step`."""
        return None

    def on_steps(self, state: RuleState, steps: Steps) -> tuple[RuleState, RollBackToBest | None]:
        """Called with the metrics of each step once, in order, in pieces of any size. A rollback is carried out at
        once; the first one counts, and the rules have then seen no step after it."""
        return state, None

    def on_window(self, state: RuleState, window: Window) -> Decided:
        """Called after every `every` steps, and after the last one."""
        return state, []

    def on_evaluation(self, state: RuleState, window: Window) -> Decided:
        """Called after each evaluation."""
        return state, []

    def on_rollback(self, state: RuleState, then: RuleState, step: int) -> RuleState:
        """The state after a return to `step`, where it was `then`."""
        return then


def _moved(mean: float, values: Sequence[float], weight: float) -> float:
    now = _mean(values)
    if math.isnan(now):
        return mean
    return now if math.isnan(mean) else mean + weight * (now - mean)


def _mean(values: Sequence[float]) -> float:
    """Of what is finite; nan where nothing is."""
    array = np.asarray(values)
    finite = array[np.isfinite(array)]
    return math.fsum(finite.tolist()) / len(finite) if len(finite) else math.nan
