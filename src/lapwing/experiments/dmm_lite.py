"""DMM Lite: 25 neurons with links between all fields learn to detect duplicate characters.

Published in the journal "tree-valued Adam, 2022" (docs/story.md). From its weights (`--start published`) and with its
gradient, which lost what flows through the memory of an accumulator, the first 16 steps have the published losses.

By default all 20,306 weights are drawn at random. Most are links of fields that a neuron does not have: they carry
nothing, but are regularized. The published draw, 0.2·normal, is too large: a field reads 28 outputs, so a signal grows
from cycle to cycle and most machines explode. From 0.02·normal they learn (docs/dataflow-matrix-machines.md).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from lapwing import dmm
from lapwing.task import Penalty, Task
from lapwing.train import ConfigError, FitConfig, FitResult, check_option

from ._dmm import (
    TEXT,
    OptimizerName,
    ReportPublished,
    machine_from_file,
    no_batch,
    optimizer_of,
    squared_error,
    teacher_answers,
)

PUBLISHED_SECONDS = 23.3
DATA_LOSS = (
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

    steps: int = 1000
    learning_rate: float = 1e-3
    steps_per_call: int = 10
    start: Literal["random", "published"] = "random"
    """random weights, or those of the published run after 1032 steps"""
    matrix: str = ""
    """a JSON file with the initial weights, in place of `start`"""
    below: float = 1e-3
    """links of the published weights, or of the file, with a smaller |weight| are left out"""
    spread: float = 0.02
    """standard deviation of random weights; from 0.2, as published, most machines explode"""
    text: str = TEXT
    """the text that the machines read, a character every ten cycles"""
    cycles: int = 140
    """cycles of a run"""
    governor: float = 100.0
    """the limit of every dot product"""
    regularisation: float = 1.0
    """weight of the regularisation, the sum of |w| + 10·w² over all soft links, in the loss"""
    accumulator_gradient: Literal["full", "truncated"] = "truncated"
    """whether a gradient flows through the memory of an accumulator; truncated as published"""
    optimizer: OptimizerName = "auto"
    """adam-as-published has the roundings of the published runs; auto: that one for given weights, otherwise adam"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option(self, "spread", 0 < self.spread < math.inf, "a positive number")
        check_option(self, "regularisation", 0 <= self.regularisation < math.inf, "0 or more")
        if self.matrix and self.start == "published":
            raise ConfigError(
                f"start published and matrix {self.matrix} both give the weights; leave out one of them"
            )


def build(config: Config) -> Task:
    program = dmm.compile(
        _student(config),
        config.cycles,
        text=config.text,
        governor=config.governor,
        accumulator_gradient=config.accumulator_gradient,
    )
    is_random = config.start == "random" and not config.matrix
    targets = teacher_answers(config.cycles, config.text)
    loss = squared_error(program, targets)

    def regularisation(params: jax.Array) -> jax.Array:
        soft = jnp.where(program.soft, params, 0.0)
        return jnp.sum(jnp.abs(soft) + 10 * soft**2)

    return Task(
        init=lambda key: program.random_params(key, config.spread) if is_random else program.start,
        data=no_batch,
        loss=loss,
        losses=loss,
        penalties={"regularisation": Penalty(config.regularisation, regularisation)},
        optimizer=optimizer_of(config.optimizer, has_weights=not is_random),
        trainable=lambda params: jnp.asarray(program.soft),
        callbacks=[ReportPublished(program, targets, PUBLISHED_SECONDS, _published_and_here)],
    )


def _student(config: Config) -> dmm.Machine:
    if config.start == "published":
        return dmm.lite_start(config.below)
    return machine_from_file(config.matrix, config.below) if config.matrix else dmm.lite_student()


def _published_and_here(result: FitResult) -> Iterator[tuple]:
    """Beside the published numbers, if it is their run: if it starts with the published loss."""
    columns = (result.metrics["data_loss"], DATA_LOSS, result.metrics["regularisation"], REGULARISATION)
    if not math.isclose(columns[0][0], DATA_LOSS[0], rel_tol=1e-5):
        yield from _first_and_last(result)
        return
    yield "step", "data_loss", "published", "regularisation", "published"
    for step, row in enumerate(zip(*columns, strict=False), start=1):
        yield step, *map(float, row)


def _first_and_last(result: FitResult) -> Iterator[tuple]:
    columns = [result.metrics[name] for name in ("data_loss", "regularisation")]
    yield "step", "data_loss", "regularisation"
    for index in (0, len(columns[0]) - 1):
        yield index + 1, *(float(column[index]) for column in columns)
