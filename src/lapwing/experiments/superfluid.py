"""The superfluid machine: twenty neurons that mix activation functions with trained weights.

Its matrix is an output of one of its neurons, so the machine could rewrite it, but does not. 2906 of 2944 leaves are
trained, from the start published in the journal "immutable trees" (docs/story.md).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from lapwing import dmm
from lapwing.task import Task
from lapwing.train import FitConfig, FitResult

from ._dmm import TEXT, ReportPublished, no_batch, teacher_answers

PUBLISHED = {
    2: (0.0354757, 0.0542845, 0.00072925),
    11: (0.354855, 0.687871, 0.0135954),
    101: (169.5692, 119.4735, 79.2106, 124.4592, 76.6079),
}
PUBLISHED_SECONDS = {2: 20.0, 11: 147.0, 101: 1580.0}


@dataclass(frozen=True)
class Config(FitConfig):
    """A superfluid dataflow matrix machine, from the published start."""

    steps: int = 5
    learning_rate: float = 0.1
    cycles: int = 101
    """cycles of a run; there are published losses for 2, 11 and 101"""
    text: str = TEXT
    """the text that the machines read, a character every ten cycles"""


def build(config: Config) -> Task:
    program = dmm.compile(dmm.superfluid_start(), config.cycles, text=config.text)
    targets = teacher_answers(config.cycles, config.text)

    def loss(params: jax.Array, batch: object) -> tuple[jax.Array, dict[str, jax.Array]]:
        return program.loss(params, targets, skip=1), {}

    def published_and_here(result: FitResult) -> Iterator[tuple]:
        yield "step", "loss", "published"
        theirs = PUBLISHED.get(config.cycles, ())
        for step, (loss, published) in enumerate(zip(result.metrics["loss"], theirs, strict=False), start=1):
            yield step, float(loss), published

    return Task(
        init=lambda key: program.start,
        data=no_batch,
        loss=loss,
        losses=loss,
        trainable=lambda params: jnp.asarray(program.soft),
        callbacks=[
            ReportPublished(program, targets, PUBLISHED_SECONDS.get(config.cycles), published_and_here)
        ],
    )
