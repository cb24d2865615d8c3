"""The options of a thinker that depend on its problem: one row for each, for options that are not given."""

from typing import Any, NamedTuple

from lapwing.data.problems import Problem
from lapwing.models import Mixer, Positions
from lapwing.train import ScheduleKind


class Defaults(NamedTuple):
    """What `lapwing train thinker --problem NAME` chooses."""

    size: int
    least: int | None = 1
    """None: the size."""
    doublings: int = 2
    """How often the size is doubled for `far`."""
    mixer: Mixer = "convolution"
    positions: Positions = "rotary"
    """Of an attention."""
    before: int = 30
    gradient_steps: int = 10
    loss_steps: int | None = None
    """None: half of the steps with a gradient."""
    kept: float = 0.0
    from_start: float = 0.3
    thinking_steps: int | None = None
    """None: as many as the most in training."""
    steps: int = 1600
    schedule: ScheduleKind = "cosine"
    batch_size: int = 128
    evaluated: int = 512

    def options(self, problem: Problem, size: int | None, mixer: Mixer) -> dict[str, Any]:
        """All options; other sizes follow from one that is given."""
        size = size or self.size
        return {
            "size": size,
            "least": self.least or size,
            "far": 0 if mixer == "dense" else self._far(problem, size),
            "before": self.before,
            "gradient_steps": self.gradient_steps,
            "kept": self.kept,
            "from_start": self.from_start,
            "steps": self.steps,
            "batch_size": self.batch_size,
            "evaluated": self.evaluated,
        }

    def _far(self, problem: Problem, size: int) -> int:
        far = size
        for _ in range(self.doublings):
            far = problem.twice(far)
        return far if self.doublings else 0


DEFAULTS = {
    "addition": Defaults(10),
    "addition_text": Defaults(8, doublings=1, mixer="attention", positions="places", batch_size=64),
    "multiplication": Defaults(3, doublings=1, mixer="attention"),
    "prefix_sums": Defaults(32, least=None, before=40, gradient_steps=16, batch_size=64),
    "parity": Defaults(16, before=20, gradient_steps=16),
    "sorting": Defaults(8, doublings=1, mixer="attention"),
    "reversal": Defaults(8, doublings=1, mixer="attention"),
    "maze": Defaults(
        9,
        least=None,
        doublings=1,
        gradient_steps=30,
        loss_steps=2,
        from_start=0.99,
        thinking_steps=40,
        steps=1000,
        schedule="constant",
        batch_size=32,
        evaluated=64,
    ),
    "sudoku": Defaults(
        9,
        least=None,
        doublings=0,
        mixer="candidates",
        before=16,
        gradient_steps=8,
        kept=0.9,
        thinking_steps=96,
        batch_size=16,
        evaluated=128,
    ),
}
