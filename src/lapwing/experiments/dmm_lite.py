"""DMM Lite: 25 neurons, every field linked to every other, learn to detect duplicate characters (seed 000).

With the published weights (`--matrix`) and the published gradient, which lost what flows through an
accumulator's own memory, the first 16 steps give the published losses. Without a file the weights are drawn,
all 20,306 of them; most are links of fields that a neuron does not have: they carry nothing, but are
regularised.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp

from lapwing import dmm, trees
from lapwing.task import Penalty, Task
from lapwing.train import ConfigError, FitConfig, FitResult

from ._dmm import TEXT, closing, drawn_start, error_of, errors_of, no_batch, teacher_answers

SECONDS_THEN = 23.3
PREREG = (
    410.80295, 400.06247, 389.3122, 378.1521, 368.61615, 358.08432, 347.94073, 338.7498,
    327.65314, 318.64127, 309.36426, 300.43744, 292.13742, 285.15756, 278.7816, 277.9474,
)  # fmt: skip
REGULARISATION = (
    335.15085, 334.5425, 334.02466, 333.55975, 333.0826, 332.68765, 332.35764, 332.0483,
    331.79083, 331.48163, 331.1553, 330.81122, 330.4651, 330.08612, 329.70935, 329.3111,
)  # fmt: skip


@dataclass(frozen=True)
class Config(FitConfig):
    """A dataflow matrix machine of 25 neurons learns to detect duplicate characters."""

    steps: int = 16
    learning_rate: float = 1e-3
    matrix: str = ""
    """a JSON file with the weights to start from; none: random ones"""
    below: float = 1e-3
    """links of the file with a smaller |weight| are left out"""
    spread: float = 0.2
    """standard deviation of random weights"""
    text: str = TEXT
    """what the machines read, a character every ten cycles"""
    cycles: int = 140
    """how long they run"""
    governor: float = 100.0
    """the limit of every dot product"""
    accumulator_gradient: Literal["full", "truncated"] = "truncated"
    """whether a gradient flows through what an accumulator holds; truncated, as published"""


def build(config: Config) -> Task:
    program = dmm.compile(
        _student(config),
        config.cycles,
        text=config.text,
        governor=config.governor,
        accumulator_gradient=config.accumulator_gradient,
    )
    targets = teacher_answers(config.cycles, config.text)

    def regularisation(params: jax.Array) -> jax.Array:
        soft = jnp.where(program.soft, params, 0.0)
        return jnp.sum(jnp.abs(soft) + 10 * soft**2)

    return Task(
        init=(lambda key: program.start) if config.matrix else drawn_start(program, config.spread),
        data=no_batch,
        loss=error_of(program, targets),
        losses=errors_of(program, targets),
        penalties={"regularisation": Penalty(1.0, regularisation)},
        trainable=lambda params: jnp.asarray(program.soft),
        finish=closing(
            program, targets, SECONDS_THEN, _published_beside_ours if config.matrix else _first_and_last
        ),
        # The published random start is 0.2·normal, from which most machines explode.
        expected_findings={} if config.matrix else {"scale": "most machines explode from a random start"},
    )


def _student(config: Config) -> dmm.Machine:
    if not config.matrix:
        return dmm.lite_student()
    try:
        text = Path(config.matrix).read_text()
    except OSError as error:
        raise ConfigError(
            f"matrix should name a JSON file with weights, but {config.matrix}: {error.strerror}"
        ) from None
    matrix = trees.prune(trees.from_json(text), config.below)
    return dmm.Machine.from_matrix(matrix, hard_rows=("timer", "input"), dead_links="keep")


def _published_beside_ours(result: FitResult) -> Iterator[tuple]:
    yield "step", "prereg", "published", "regularisation", "published"
    ours = result.metrics["prereg"], result.metrics["regularisation"]
    for step, (prereg, regularisation, *theirs) in enumerate(
        zip(*ours, PREREG, REGULARISATION, strict=False), 1
    ):
        yield step, float(prereg), theirs[0], float(regularisation), theirs[1]


def _first_and_last(result: FitResult) -> Iterator[tuple]:
    yield "step", "prereg", "regularisation"
    for step in (0, -1):
        place = step % len(result.metrics["prereg"]) + 1
        yield place, float(result.metrics["prereg"][step]), float(result.metrics["regularisation"][step])
