"""How to train. The config of an experiment inherits these options, so all options are in one place."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from lapwing.core import LapwingError


class ConfigError(LapwingError, ValueError):
    """An option with an invalid value."""


def check_option(config: Any, name: str, good: bool, expected: str) -> None:
    """Raises `ConfigError` with the name of the option and what it should be, unless it is good.

    >>> check_option(FitConfig(seed=3), "seed", False, "even")
    Traceback (most recent call last):
    lapwing.train._config.ConfigError: seed should be even, but is 3
    """
    if not good:
        part = getattr(config, "_part", "")
        raise ConfigError(f"{part}{name} should be {expected}, but is {getattr(config, name)}")


def default_of(config: Any, name: str) -> Any:
    """The default of an option in the class of a config.

    >>> default_of(FitConfig(learning_rate=0.5), "learning_rate")
    0.001
    """
    field = next(field for field in dataclasses.fields(config) if field.name == name)
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


ScheduleKind = Literal["constant", "cosine", "points", "plateau"]


@dataclass(frozen=True)
class Schedule:
    """The learning rate over the steps, as a factor of `learning_rate`. For others, see `Task.schedule`."""

    _part: ClassVar[str] = "schedule."

    kind: ScheduleKind = "constant"
    """constant; cosine: decays to `floor` at the last step; points: linear between `points`; plateau: multiplied by
    `cut` after `patience` steps without a new best of --best"""
    warmup: int = 0
    """steps of linear warmup, for every kind"""
    floor: float = 0.0
    """final factor of cosine, lowest factor of plateau"""
    points: tuple[tuple[int, float], ...] = ()
    """pairs of a step and a factor"""
    patience: int = 1000
    """steps without a new best before plateau cuts"""
    cut: float = 0.5
    """factor of each cut of plateau"""

    def __post_init__(self) -> None:
        check_option(self, "warmup", self.warmup >= 0, "at least 0")
        check_option(self, "floor", 0 <= self.floor <= 1, "from 0 to 1")
        check_option(self, "patience", self.patience >= 1, "at least 1")
        check_option(self, "cut", 0 < self.cut < 1, "between 0 and 1")
        steps = [step for step, _ in self.points]
        rising = bool(steps) and steps == sorted(set(steps))
        good = rising and all(0 <= factor < math.inf for _, factor in self.points)
        if self.kind == "points":
            check_option(self, "points", good, "pairs of a step and a factor of at least 0, the steps rising")


@dataclass(frozen=True)
class Rollback:
    """When to return to the best parameters, with a smaller learning rate and new data: when the loss is not finite,
    and in the cases below."""

    _part: ClassVar[str] = "rollback."

    times: int = 3
    """number of rollbacks before the run fails"""
    factor: float = math.inf
    """roll back when the loss exceeds its smoothed best by this factor ..."""
    patience: int = 10
    """... for this many steps in a row, or when this many updates in a row are not finite"""
    spike: float = math.inf
    """roll back when the gradient norm exceeds its usual size by this factor"""
    cut: float = 0.5
    """factor of the learning rate at each rollback"""

    def __post_init__(self) -> None:
        check_option(self, "times", self.times >= 0, "at least 0")
        check_option(self, "patience", self.patience >= 1, "at least 1")
        check_option(self, "cut", 0 < self.cut <= 1, "above 0 and at most 1")
        for name in ("factor", "spike"):
            check_option(self, name, getattr(self, name) > 1, "more than 1, or inf for never")


@dataclass(frozen=True)
class Checkpointing:
    """When to write a checkpoint. One is also written at the end, at Ctrl-C and after each command."""

    _part: ClassVar[str] = "checkpoint."

    seconds: float = 60.0
    """seconds between checkpoints"""
    every: int = 0
    """steps between further checkpoints; 0: by time only"""
    keep_every: int = 0
    """never delete the checkpoints of every N-th step; otherwise the last two and the best are kept"""

    def __post_init__(self) -> None:
        check_option(self, "seconds", self.seconds > 0, "a positive number, or inf for never")
        for name in ("every", "keep_every"):
            check_option(self, name, getattr(self, name) >= 0, "at least 0")


@dataclass(frozen=True)
class Stop:
    """When to stop before the last step."""

    _part: ClassVar[str] = "stop."

    metric: str = "loss"
    """the metric of `below` and `above`: the smoothed loss, or the newest value of another metric, such as eval_loss"""
    below: float = -math.inf
    """stop when the metric is below this"""
    above: float = math.inf
    """stop when the metric is above this"""
    patience: int = 0
    """stop after this many steps without a new best of --best; 0: never"""
    minutes: float = math.inf
    """stop after this time; `lapwing resume` continues the run"""

    def __post_init__(self) -> None:
        check_option(self, "patience", self.patience >= 0, "at least 0")
        for name in ("below", "above"):
            check_option(self, name, not math.isnan(getattr(self, name)), "a number")
        check_option(self, "minutes", self.minutes > 0, "a positive number")


WATCHERS = ("still_leaf", "lost_updates", "dead_units", "attention", "leak", "parting", "not_finite")


@dataclass(frozen=True)
class Watch:
    """What watches the run while it trains, and reports once what looks wrong. See docs/watchers.md."""

    _part: ClassVar[str] = "watch."

    off: tuple[
        Literal[
            "all", "still_leaf", "lost_updates", "dead_units", "attention", "leak", "parting", "not_finite"
        ],
        ...,
    ] = ()
    """watchers that are switched off"""
    every: int = 0
    """steps between two probes of parameters, units and attention; 0: as often as takes less than 1% of the time"""

    def __post_init__(self) -> None:
        known = {*WATCHERS, "all"}
        check_option(self, "off", {*self.off} <= known, f"among {', '.join(sorted(known))}")
        check_option(self, "every", self.every >= 0, "at least 0")

    def is_on(self, name: str) -> bool:
        return name not in self.off and "all" not in self.off


@dataclass(frozen=True)
class FitConfig:
    """The options of `fit`.

    >>> FitConfig(steps=100, learning_rate=0.01).clip
    inf
    >>> FitConfig(learning_rate=-1.0)
    Traceback (most recent call last):
    lapwing.train._config.ConfigError: learning_rate should be a positive number, but is -1.0
    """

    steps: int = 1000
    """number of updates"""
    learning_rate: float = 1e-3
    """the learning rate; --lr for short"""
    schedule: Schedule = Schedule()
    clip: float = math.inf
    """largest global norm of the gradient; inf: no clipping"""
    weight_decay: float = 0.0
    """decoupled weight decay, times the learning rate"""
    seed: int = 0
    """seed of the initial parameters and of all data"""
    steps_per_call: int = 1
    """updates in one call of the device; more is faster if a step takes well under a millisecond"""
    accumulate: int = 1
    """parts of a batch whose gradients are summed one after the other: the same update with less memory"""
    precision: Literal["float32", "bfloat16"] = "float32"
    """of the loss and its gradient; parameters, optimizer and state of the model stay in float32"""
    deterministic: bool = True
    """on a GPU, compute the same bits every time; on a CPU that is always so"""
    ema: float = 0.0
    """decay of a moving average of the parameters, which is then what is evaluated; 0: none"""
    overfit_batch: bool = False
    """train on the first batch only: a model that cannot overfit it has a bug"""
    log_every: int = 100
    """steps between two looks at the metrics: best, rollback, early stop. Metrics are also written then, or after half
    a second if that is sooner"""
    best: str = "loss"
    """the metric that decides what is best: loss, another metric of a step, or an evaluation such as eval_accuracy. It
    counts for the checkpoint that is kept, for rollbacks, stop.patience and plateaus"""
    mode: Literal["min", "max"] = "min"
    """whether the best is the lowest or the highest value"""
    smooth: int = 100
    """a metric of a step that decides what is best is smoothed over about this many steps"""
    evaluate_every: int = 0
    """steps between evaluations; 0: only at the end"""
    laps_every: int = 200
    """time the phases in one of this many calls, and in the first few; with 100 or more, only as long as that takes
    less than 1% of the time; 0: never"""
    tensorboard: bool = False
    """also write event files for TensorBoard"""
    rollback: Rollback = Rollback()
    checkpoint: Checkpointing = Checkpointing()
    stop: Stop = Stop()
    watch: Watch = Watch()

    def __post_init__(self) -> None:
        for name in ("steps", "steps_per_call", "log_every", "smooth"):
            check_option(self, name, getattr(self, name) >= 1, "at least 1")
        for name in ("evaluate_every", "laps_every"):
            check_option(self, name, getattr(self, name) >= 0, "at least 0")
        check_option(self, "accumulate", self.accumulate >= 1, "at least 1")
        check_option(self, "ema", 0 <= self.ema < 1, "from 0 to less than 1")
        evaluates = self.evaluate_every > 0 or not self.best.startswith("eval_")
        check_option(self, "best", evaluates, "loss or a metric of a step, as there is no evaluate_every")
        check_option(self, "mode", self.mode in ("min", "max"), "min or max")
        check_option(self, "seed", 0 <= self.seed < 2**63, "from 0 to 2^63 - 1")
        check_option(self, "learning_rate", 0 < self.learning_rate < math.inf, "a positive number")
        check_option(self, "clip", self.clip > 0, "a positive number, or inf for none")
        check_option(self, "weight_decay", 0 <= self.weight_decay < math.inf, "at least 0")
