"""How to train. An experiment's own config inherits these options, so that they are all beside each other."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from lapwing.core import LapwingError


class ConfigError(LapwingError, ValueError):
    """An option with a value that makes no sense."""


def check_option(config: Any, name: str, good: bool, expected: str) -> None:
    """Raises an error that names the option and what it should be, unless it is good.

    >>> check_option(FitConfig(seed=3), "seed", False, "even")
    Traceback (most recent call last):
    lapwing.train._config.ConfigError: seed should be even, but is 3
    """
    if not good:
        part = getattr(config, "_part", "")
        raise ConfigError(f"{part}{name} should be {expected}, but is {getattr(config, name)}")


@dataclass(frozen=True)
class Schedule:
    """How the learning rate goes, as a factor of `learning_rate`."""

    _part: ClassVar[str] = "schedule."

    kind: Literal["constant", "cosine", "points", "plateau"] = "constant"
    """constant; cosine: down to `floor` at the last step; points: along `points`; plateau: cut when the smoothed loss
    has found no new best for `patience` steps"""
    warmup: int = 0
    """the factor rises from 0 over so many steps, whatever the kind"""
    floor: float = 0.0
    """cosine ends at this factor; plateau never goes below it"""
    points: tuple[tuple[int, float], ...] = ()
    """pairs of a step and a factor, straight lines between them"""
    patience: int = 1000
    """plateau: steps without a new best"""
    cut: float = 0.5
    """plateau: what the rate is multiplied by"""

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
    """When to go back to the best parameters, with a smaller rate and other data: when the loss is not finite, and
    when one of these says so."""

    _part: ClassVar[str] = "rollback."

    times: int = 3
    """go back at most so often, then fail; 0: fail at once"""
    factor: float = math.inf
    """go back when the loss exceeds its smoothed best by this factor ..."""
    patience: int = 10
    """... for so many steps on end; also when so many updates on end are not finite"""
    spike: float = math.inf
    """go back when the norm of the gradient exceeds its usual size by this factor"""
    cut: float = 0.5
    """the rate is multiplied by this each time"""

    def __post_init__(self) -> None:
        check_option(self, "times", self.times >= 0, "at least 0")
        check_option(self, "patience", self.patience >= 1, "at least 1")
        check_option(self, "cut", 0 < self.cut <= 1, "above 0 and at most 1")
        for name in ("factor", "spike"):
            check_option(self, name, getattr(self, name) > 1, "more than 1, or inf for never")


@dataclass(frozen=True)
class Checkpointing:
    """When to write a checkpoint. One is always written at the end, at Ctrl-C and after each command."""

    _part: ClassVar[str] = "checkpoint."

    seconds: float = 60.0
    """after so many seconds"""
    every: int = 0
    """and after so many steps; 0: by time alone"""
    keep_every: int = 0
    """checkpoints of every so many steps are never deleted; otherwise the last two and the best are kept"""

    def __post_init__(self) -> None:
        check_option(self, "seconds", self.seconds > 0, "a positive number, or inf for never")
        for name in ("every", "keep_every"):
            check_option(self, name, getattr(self, name) >= 0, "at least 0")


@dataclass(frozen=True)
class Stop:
    """When to stop before the last step."""

    _part: ClassVar[str] = "stop."

    metric: str = "loss"
    """what `below` and `above` are about: the smoothed loss, or the newest value of another metric, such as
    eval_loss"""
    below: float = -math.inf
    """stop when it is below this"""
    above: float = math.inf
    """stop when it is above this"""
    patience: int = 0
    """stop when the smoothed loss has found no new best for so many steps; 0: never"""
    rising: str = ""
    """an evaluation of which more is better, such as eval_accuracy ..."""
    rising_patience: int = 0
    """... stop when it has found no new best for so many steps; 0: never"""
    minutes: float = math.inf
    """stop after this time; `lapwing resume` can go on"""

    def __post_init__(self) -> None:
        for name in ("patience", "rising_patience"):
            check_option(self, name, getattr(self, name) >= 0, "at least 0")
        named = self.rising.startswith("eval_") if self.rising_patience else True
        check_option(self, "rising", named, "the name of an evaluation, such as eval_accuracy")
        check_option(self, "minutes", self.minutes > 0, "a positive number")


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
    """how many updates to make"""
    learning_rate: float = 1e-3
    """the learning rate"""
    schedule: Schedule = Schedule()
    clip: float = math.inf
    """the gradient is scaled down to this norm where it is larger"""
    weight_decay: float = 0.0
    """each update also takes away this part of the trained parameters, times the rate"""
    seed: int = 0
    """of the initial parameters and of all data"""
    steps_per_call: int = 1
    """updates in one call of the device; more is faster where a step takes well under a millisecond"""
    overfit_batch: bool = False
    """train on the first batch only: what cannot even learn this by heart has a mistake"""
    log_every: int = 100
    """look at the numbers after this many steps: what is best, whether to go back, whether to stop. They are also
    written then, or after half a second if that is sooner"""
    smooth: int = 100
    """the loss is smoothed over about so many steps to say what is best"""
    evaluate_every: int = 0
    """evaluate after every so many steps; 0: only at the end"""
    laps_every: int = 200
    """time the phases in one of so many calls, and in the first few; 0: never"""
    tensorboard: bool = False
    """write event files for TensorBoard too"""
    rollback: Rollback = Rollback()
    checkpoint: Checkpointing = Checkpointing()
    stop: Stop = Stop()

    def __post_init__(self) -> None:
        for name in ("steps", "steps_per_call", "log_every", "smooth"):
            check_option(self, name, getattr(self, name) >= 1, "at least 1")
        for name in ("evaluate_every", "laps_every"):
            check_option(self, name, getattr(self, name) >= 0, "at least 0")
        check_option(self, "seed", 0 <= self.seed < 2**63, "from 0 to 2^63 - 1")
        check_option(self, "learning_rate", 0 < self.learning_rate < math.inf, "a positive number")
        check_option(self, "clip", self.clip > 0, "a positive number, or inf for none")
        check_option(self, "weight_decay", 0 <= self.weight_decay < math.inf, "at least 0")
