"""A curriculum of lengths: examples grow while they are answered well.

The stage is a pytree of arrays in the training state, so that a resumed or repeated run has the same lengths.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ._sequences import check


class Stage(NamedTuple):
    """The current length, the steps since it changed, and the smoothed exact match.

    >>> stage = Curriculum(start=4).begin(20)
    >>> int(stage.length), int(stage.steps), float(stage.right)
    (4, 0, 0.0)
    """

    length: Int[Array, ""]
    steps: Int[Array, ""]
    right: Float[Array, ""]


@dataclass(frozen=True)
class Curriculum:
    """Starts with short examples and makes them longer when they are answered well.

    >>> curriculum = Curriculum(start=4, bound=0.9, least=10)
    >>> stage = curriculum.begin(20)
    >>> for _ in range(40):
    ...     stage = curriculum.after(stage, jnp.float32(1.0), 20)
    >>> int(stage.length)
    5
    """

    start: int = 0
    """length of the first examples; 0: full length from the start"""
    bound: float = 0.9
    """grow when the smoothed exact match exceeds this ..."""
    least: int = 50
    """... and at least this many steps have passed at the current length"""
    grow: int = 1
    """increase of the length"""

    def __post_init__(self) -> None:
        check("curriculum.start", self.start, self.start >= 0, "at least 0")
        check("curriculum.bound", self.bound, 0 <= self.bound < 1, "from 0 to below 1")
        check("curriculum.least", self.least, self.least >= 1, "at least 1")
        check("curriculum.grow", self.grow, self.grow >= 1, "at least 1")

    def begin(self, longest: int) -> Stage:
        """The first stage, of length at most `longest`."""
        length = min(self.start, longest) if self.start else longest
        return Stage(jnp.int32(length), jnp.int32(0), jnp.float32(0.0))

    def after(self, stage: Stage, exact_match: Float[Array, ""], longest: int) -> Stage:
        """The stage after a step with this exact match."""
        right = stage.right + _SMOOTHING * (exact_match - stage.right)
        steps = stage.steps + 1
        grown = (right > self.bound) & (steps >= self.least) & (stage.length < longest)
        return Stage(
            jnp.where(grown, jnp.minimum(stage.length + self.grow, longest), stage.length),
            jnp.where(grown, 0, steps),
            jnp.where(grown, 0.0, right),
        )


_SMOOTHING = 0.1  # An average over about ten steps.
