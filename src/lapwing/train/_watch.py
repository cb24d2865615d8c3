"""What the host makes of the numbers: which parameters are the best, when to go back to them, when to stop.

Everything here is a function of the losses and gradient norms of the steps, in their order, and of nothing else: not
of the clock, and not of the pieces in which the numbers arrive. So a run that was killed and resumed decides the same
at the same steps. Two things are decided at once, wherever in a window they are seen, since what follows does not
depend on when they are seen: that there is trouble, and at which step. The rest is decided at the end of a window of
`log_every` steps, with the numbers of the whole window.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._config import FitConfig


@dataclass(frozen=True)
class Trouble:
    """Why the run cannot go on as it is."""

    step: int
    reason: str


@dataclass
class Watch:
    """What is known so far. Plain numbers, which go into a checkpoint as they are."""

    smoothed: float = math.nan
    usual_norm: float = math.nan
    best: float = math.inf
    best_step: int = 0
    cut_step: int = 0
    risen: float = -math.inf
    risen_step: int = 0
    skipped: int = 0
    skipped_on_end: int = 0
    above_on_end: int = 0
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Watch":
        return cls(**record)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def see(
        self, config: FitConfig, first: int, losses: np.ndarray, norms: np.ndarray, skipped: np.ndarray
    ) -> Trouble | None:
        """Takes the numbers of some steps; trouble ends it, and the numbers after it do not count."""
        rules = config.rollback
        left_out, self.skipped_on_end = _on_end(skipped, self.skipped_on_end)
        above, self.above_on_end = _on_end(losses > self._too_high(rules.factor), self.above_on_end)
        found = {
            "the loss was not finite": ~np.isfinite(losses),
            f"no update was finite for {rules.patience} steps": left_out >= rules.patience,
            f"the loss was above {rules.factor:g} times its best ({self.best:.4g}) for {rules.patience} steps": above
            >= rules.patience,
            f"the gradient was above {rules.spike:g} times its usual norm ({self.usual_norm:.4g})": norms
            > self.usual_norm * rules.spike,
        }
        firsts = {reason: int(where.argmax()) for reason, where in found.items() if where.any()}
        reason = min(firsts, key=firsts.__getitem__, default=None)
        end = len(losses) if reason is None else firsts[reason]
        self.skipped += int(np.count_nonzero(skipped[: end + 1]))
        self.losses += losses[:end].tolist()
        self.norms += norms[:end].tolist()
        return None if reason is None else Trouble(first + end, reason)

    def end_window(self, config: FitConfig, done: int) -> bool:
        """At the end of a window of steps, after `done` steps: whether the parameters are the best so far."""
        weight = -math.expm1(-len(self.losses) / config.smooth)
        self.smoothed = _moved(self.smoothed, self.losses, weight)
        self.usual_norm = _moved(self.usual_norm, self.norms, weight)
        losses, self.losses, self.norms = self.losses, [], []
        if self.best == math.inf and _rises(losses):
            self.best = _moved(math.nan, losses[: len(losses) // 2], 1.0)  # The start is better than this.
        if not self.smoothed < self.best:
            return False
        self.best, self.best_step = self.smoothed, done
        self.cut_step = done
        return True

    def should_cut(self, config: FitConfig, done: int) -> bool:
        """Whether a plateau's rate is to be cut now, at the end of a window."""
        plan = config.schedule
        if plan.kind != "plateau" or done - self.cut_step < plan.patience:
            return False
        self.cut_step = done
        return True

    def waited_in_vain(self, config: FitConfig, done: int) -> bool:
        return 0 < config.stop.patience <= done - self.best_step

    def see_evaluation(self, config: FitConfig, done: int, evaluation: Mapping[str, float]) -> None:
        """Takes an evaluation after `done` steps, of which one number may be what should rise."""
        value = evaluation.get(config.stop.rising, math.nan)
        if value > self.risen:
            self.risen, self.risen_step = value, done

    def rose_in_vain(self, config: FitConfig, done: int) -> bool:
        return 0 < config.stop.rising_patience <= done - self.risen_step

    def back_at_best(self) -> "Watch":
        """What to go on with after going back to the best parameters."""
        return Watch(
            smoothed=self.best,
            usual_norm=self.usual_norm,
            best=self.best,
            best_step=self.best_step,
            cut_step=self.best_step,
            risen=self.risen,
            risen_step=min(self.risen_step, self.best_step),
            skipped=self.skipped,
        )

    def _too_high(self, factor: float) -> float:
        """Above the best, measured by its size, so that a negative loss has a meaning too."""
        return self.best + (factor - 1) * abs(self.best) if math.isfinite(self.best) else math.inf


def _on_end(is_so: np.ndarray, before: int) -> tuple[np.ndarray, int]:
    """For how many steps on end it has been so, at each step; `before` is the number before the first.

    >>> _on_end(np.array([True, True, False, True]), 3)
    (array([4, 5, 0, 1]), 1)
    """
    at = np.arange(1, len(is_so) + 1)
    counts = at - np.maximum.accumulate(np.where(is_so, -before, at))
    return counts, int(counts[-1]) if len(counts) else before


def _rises(losses: list[float]) -> bool:
    """Whether the second half is above the first one."""
    half = len(losses) // 2
    first, second = (_moved(math.nan, part, 1.0) for part in (losses[:half], losses[half:]))
    return second > first


def _moved(mean: float, values: list[float], weight: float) -> float:
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return mean
    now = math.fsum(finite) / len(finite)
    return now if math.isnan(mean) else mean + weight * (now - mean)
