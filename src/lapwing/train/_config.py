"""How to train. An experiment's own config inherits these options, so that they are all beside each other."""

import math
from dataclasses import dataclass


class ConfigError(ValueError):
    """An option with a value that makes no sense."""


@dataclass(frozen=True)
class FitConfig:
    """The options of `fit`.

    >>> FitConfig(steps=100, rate=0.01).clip
    inf
    >>> FitConfig(rate=-1.0)
    Traceback (most recent call last):
    lapwing.train._config.ConfigError: rate should be a positive number, but is -1.0
    """

    steps: int = 1000
    """how many updates to make"""
    rate: float = 1e-3
    """the learning rate"""
    clip: float = math.inf
    """the gradient is scaled down to this norm where it is larger"""
    seed: int = 0
    """of the initial parameters and of all data"""
    steps_per_call: int = 1
    """updates in one call of the device; more is faster where a step takes well under a millisecond"""
    log_every: int = 100
    """write metrics after this many steps, or half a second if that is sooner"""
    evaluate_every: int = 0
    """evaluate after every so many steps; 0: only at the end"""
    laps_every: int = 200
    """time the phases in one of so many calls, and in the first few; 0: never"""

    def __post_init__(self) -> None:
        for name in ("steps", "steps_per_call", "log_every"):
            check_option(self, name, getattr(self, name) >= 1, "at least 1")
        for name in ("evaluate_every", "laps_every"):
            check_option(self, name, getattr(self, name) >= 0, "at least 0")
        check_option(self, "seed", 0 <= self.seed < 2**63, "from 0 to 2^63 - 1")
        check_option(self, "rate", 0 < self.rate < math.inf, "a positive number")
        check_option(self, "clip", self.clip > 0, "a positive number, or inf for none")


def check_option(config: FitConfig, name: str, good: bool, expected: str) -> None:
    """Raises an error that names the option and what it should be, unless it is good.

    >>> check_option(FitConfig(seed=3), "seed", False, "even")
    Traceback (most recent call last):
    lapwing.train._config.ConfigError: seed should be even, but is 3
    """
    if not good:
        raise ConfigError(f"{name} should be {expected}, but is {getattr(config, name)}")
