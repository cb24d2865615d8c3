"""Lengths that grow while the examples are answered well.

The stage is a tree of arrays that a step changes on the device, so it is the same whenever a run is repeated, and a
resumed run goes on with it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ._sequences import check


class Stage(NamedTuple):
    """The length of the examples now, the steps it has been so, and the smoothed share of right answers."""

    length: Int[Array, ""]
    steps: Int[Array, ""]
    right: Float[Array, ""]


@dataclass(frozen=True)
class Curriculum:
    """Begins with short examples, and makes them longer while they are answered well.

    >>> lessons = Curriculum(start=4, bound=0.9, least=10)
    >>> stage = lessons.begin(20)
    >>> for _ in range(40):
    ...     stage = lessons.after(stage, jnp.float32(1.0), 20)
    >>> int(stage.length)
    5
    """

    start: int = 0
    """the length of the first examples; 0: all have the full length from the start"""
    bound: float = 0.9
    """they grow when the smoothed share of exact matches is above this ..."""
    least: int = 50
    """... and the length has been the same for at least so many steps"""
    grow: int = 1
    """by so much"""

    def __post_init__(self) -> None:
        check("curriculum.start", self.start, self.start >= 0, "at least 0")
        check("curriculum.bound", self.bound, 0 <= self.bound < 1, "from 0 to below 1")
        check("curriculum.least", self.least, self.least >= 1, "at least 1")
        check("curriculum.grow", self.grow, self.grow >= 1, "at least 1")

    def begin(self, longest: int) -> Stage:
        """The first stage, never longer than the longest examples."""
        length = min(self.start, longest) if self.start else longest
        return Stage(jnp.int32(length), jnp.int32(0), jnp.float32(0.0))

    def after(self, stage: Stage, exact_match: Float[Array, ""], longest: int) -> Stage:
        """The stage after a step in which this share of the examples was answered right."""
        right = stage.right + _SMOOTHING * (exact_match - stage.right)
        steps = stage.steps + 1
        grown = (right > self.bound) & (steps >= self.least) & (stage.length < longest)
        return Stage(
            jnp.where(grown, jnp.minimum(stage.length + self.grow, longest), stage.length),
            jnp.where(grown, 0, steps),
            jnp.where(grown, 0.0, right),
        )


_SMOOTHING = 0.1  # Over about ten steps.
