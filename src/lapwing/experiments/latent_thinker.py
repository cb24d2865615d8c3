"""A small transformer that thinks in steps learns to copy, roll, sort, add and so on.

Evaluations are on held-out examples: the exact match is the headline, the scores of a model that ignores its inputs are
beside it, and padding is never counted. See docs/thinker.md.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from lapwing.data import (
    Curriculum,
    Examples,
    Name,
    SequenceProblem,
    Stage,
    cross_entropy,
    score,
    score_by_place,
    trivial_answers,
)
from lapwing.models import Thinker, ThinkerSize
from lapwing.task import Task
from lapwing.train import FitConfig, Schedule, check_option

Metrics = Mapping[str, Array]


@dataclass(frozen=True)
class Config(FitConfig):
    """A transformer that thinks in steps learns a problem on sequences."""

    task: Name = "add"
    """copy, flip (reverse), roll (by the first symbol), sort, cumsum (modulo the base) or add"""
    base: int = 16
    """number of symbols; the base of the numbers of add"""
    length: int = 20
    """symbols in a sequence; for add, see below"""
    below: int = 1000
    """add: upper limit of the operands"""
    far: int = 100_000
    """add: also evaluate on operands below this, longer than those trained on; 0: do not"""
    model: ThinkerSize = field(default_factory=ThinkerSize)
    curriculum: Curriculum = field(default_factory=Curriculum)
    every_step: bool = False
    """use the mean of the losses after each thinking step instead of the last"""
    sample_steps: bool = False
    """draw the number of thinking steps of each batch, from 1 to model.steps"""
    batch_size: int = 256
    """examples in a batch"""
    evaluated: int = 4096
    """held-out examples of an evaluation"""
    steps: int = 2000
    learning_rate: float = 3e-3
    schedule: Schedule = field(default_factory=lambda: Schedule("cosine", warmup=100))
    clip: float = 1.0
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("batch_size", "evaluated"):
            check_option(self, name, getattr(self, name) >= 1, "at least 1")
        longer = self.far == 0 or self.far >= self.below
        check_option(self, "far", longer, f"at least as large as below ({self.below}), or 0 for none")

    @property
    def problem(self) -> SequenceProblem:
        return SequenceProblem(self.task, self.base, self.length, self.below)

    @property
    def far_problem(self) -> SequenceProblem:
        """The same problem with longer examples, if any."""
        return SequenceProblem(self.task, self.base, self.length, max(self.far, self.below))


class Batch(NamedTuple):
    """Examples of one length, and the number of thinking steps."""

    examples: Examples
    length: Array
    steps: Array


BATCH_AXIS = Batch._make([0, None, None])  # Length and steps are shared by all examples.


def build(config: Config) -> Task:
    problem, far = config.problem, config.far_problem

    def init(key: Array) -> Thinker:
        return Thinker(config.model, problem.vocabulary, far.inputs, far.outputs, key)

    def batch(key: Array, step: Array, stage: Stage) -> Batch:
        examples_key, steps_key = jax.random.split(key)
        examples = problem.draw(examples_key, config.batch_size, "train", stage.length)
        least = 1 if config.sample_steps else config.model.steps
        steps = jax.random.randint(steps_key, (), least, config.model.steps + 1)
        return Batch(examples, stage.length, steps)

    def loss(params: Thinker, batch: Batch) -> tuple[Array, Metrics]:
        targets = batch.examples.targets
        if config.every_step:
            logits = all_logits(params, batch.examples)
            each = jax.vmap(cross_entropy, in_axes=(1, None))(logits, targets)
            return jnp.mean(each), _batch_metrics(logits[:, -1], batch)
        logits = logits_of(params, batch.examples, batch.steps)
        return cross_entropy(logits, targets), _batch_metrics(logits, batch)

    def evaluate(params: Thinker, key: Array) -> Metrics:
        near_key, far_key = jax.random.split(key)
        metrics = report(params, problem.draw(near_key, config.evaluated, "test"), problem)
        if far.longest > problem.longest:
            examples = far.draw(far_key, config.evaluated, "test")
            metrics |= {f"far_{name}": value for name, value in _scores(params, examples).items()}
        return metrics

    return Task(
        init=jax.jit(init),
        data=batch,
        loss=loss,
        evaluate=evaluate,
        optimizer=functools.partial(optax.adam, b2=0.98),
        memory=lambda key: config.curriculum.begin(problem.longest),
        remember=lambda stage, batch, metrics: config.curriculum.after(
            stage, metrics["exact_match"], problem.longest
        ),
        batch_axis=BATCH_AXIS,
        predict=lambda params, batch: logits_of(params, batch.examples, batch.steps),
        targets=lambda batch: batch.examples.targets,
        classes=problem.vocabulary,
    )


def logits_of(
    model: Thinker, examples: Examples, steps: Int[Array, ""] | int | None = None
) -> Float[Array, "examples outputs vocabulary"]:
    """The logits of all answers."""
    outputs = examples.targets.shape[1]
    return jax.vmap(lambda tokens: model(tokens, outputs, steps))(examples.inputs)


def all_logits(model: Thinker, examples: Examples) -> Float[Array, "examples steps outputs vocabulary"]:
    """The logits after each thinking step."""
    outputs = examples.targets.shape[1]
    return jax.vmap(lambda tokens: model.at_every_step(tokens, outputs))(examples.inputs)


def report(model: Thinker, examples: Examples, problem: SequenceProblem) -> dict[str, Array]:
    """The metrics of an evaluation on examples of a problem. A place that no answer has is left out."""
    logits = logits_of(model, examples)
    answers, targets = jnp.argmax(logits, axis=-1), examples.targets
    trivial = score(trivial_answers(targets, problem.vocabulary), targets)
    return {
        "loss": cross_entropy(logits, targets),
        **score(answers, targets)._asdict(),
        **{f"baseline_{name}": value for name, value in trivial._asdict().items()},
        **{f"place_{i}": share for i, share in enumerate(score_by_place(answers, targets)[: problem.places])},
    }


def _scores(model: Thinker, examples: Examples) -> dict[str, Array]:
    return score(jnp.argmax(logits_of(model, examples), axis=-1), examples.targets)._asdict()


def _batch_metrics(logits: Array, batch: Batch) -> dict[str, Array]:
    """Metrics of the training batch, which drive the curriculum."""
    return {
        **score(jnp.argmax(logits, axis=-1), batch.examples.targets)._asdict(),
        "length": batch.length.astype(jnp.float32),
    }
