"""The options of a synthesis."""

from dataclasses import dataclass
from typing import Literal

from lapwing.train import FitConfig, check_option


@dataclass(frozen=True)
class SynthesisConfig(FitConfig):
    """Machines are trained from random starts and pruned until no link can go."""

    steps: int = 60000
    """maximum number of updates; it ends earlier when nothing is left to prune"""
    learning_rate: float = 3e-3
    """the learning rate; while machines are pruned it falls within each round"""
    steps_per_call: int = 50
    log_every: int = 250
    laps_every: int = 0
    starts: int = 8
    """number of machines, each from its own random start"""
    spread: float = 0.02
    """standard deviation of the initial weights"""
    lasso: float = 0.025
    """weight of the sum of all |weights| in the loss"""
    governor: float = 100.0
    """the limit of every dot product"""
    accumulator_gradient: Literal["full", "truncated"] = "full"
    """whether a gradient flows through the memory of an accumulator"""
    train_steps: int = 1500
    """updates before the first link is pruned"""
    round_steps: int = 250
    """updates per round; after each round links are pruned or restored"""
    pruning: Literal["automatic", "single", "threshold"] = "automatic"
    """automatic: the links that matter least, many at first, restored if the error stays higher; single: the weakest
    link of each machine, until its error stays too high; threshold: all links below a limit that rises from round to
    round, as published"""
    thresholds: tuple[float, ...] = (0.01, 0.02, 0.03, 0.05, 0.07, 0.09, 0.11, 0.13, 0.15, 0.17, 0.19)
    """the limits of pruning=threshold, round by round"""
    optimizer_state: Literal["new", "pruned"] = "new"
    """after a round, start with a new optimizer state, or keep it without the pruned links"""
    bound: float = 0.08
    """the error (summed over cycles, mean over texts) up to which a small machine may rise when a link is cut"""
    polish_rounds: int = 6
    """rounds without pruning and lasso at the end"""
    restarts: int = 3
    """how many times a start that ends wrong gets new random weights"""
    right_error: float = 0.0
    """the error above which a start ends wrong; 0: that of `bound`"""
    right_links: int = 0
    """the number of links above which a start ends wrong; 0: any number is right"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("starts", "round_steps"):
            check_option(self, name, getattr(self, name) >= 1, "at least 1")
        for name in ("train_steps", "polish_rounds", "restarts", "right_error", "right_links"):
            check_option(self, name, getattr(self, name) >= 0, "at least 0")
        check_option(self, "bound", self.bound > 0, "a positive number")
        fits = self.round_steps % self.steps_per_call == 0
        check_option(self, "steps_per_call", fits, f"a divisor of the {self.round_steps} steps of a round")
        rising = bool(self.thresholds) and list(self.thresholds) == sorted(self.thresholds)
        check_option(self, "thresholds", rising, "increasing numbers")
