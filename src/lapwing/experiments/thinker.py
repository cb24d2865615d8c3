"""A small transformer that thinks in steps learns to copy, roll, sort, add and so on: the experiments of seed 002.

What is told is about examples that were never trained on: the exact match is the headline, what one gets without
looking at the input stands beside it, and padding counts nowhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

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

Metrics = Mapping[str, jax.Array]


@dataclass(frozen=True)
class Config(FitConfig):
    """A transformer that thinks in steps learns a task on sequences."""

    task: Name = "add"
    """copy, flip, roll (by the first symbol), sort, cumsum (modulo the base), or add"""
    base: int = 16
    """how many symbols there are; add counts in it"""
    length: int = 20
    """symbols in a sequence; for add the operands say it"""
    below: int = 1000
    """add: the operands are below this"""
    far: int = 100_000
    """add: evaluate on operands below this too, which are longer than any it was trained on; 0: do not"""
    model: ThinkerSize = field(default_factory=ThinkerSize)
    curriculum: Curriculum = field(default_factory=Curriculum)
    every_step: bool = False
    """the loss is the mean of those after each step of thinking, not that after the last"""
    sample_steps: bool = False
    """each batch is answered after another number of steps, from 1 to model.steps"""
    batch_size: int = 256
    """examples in a batch"""
    evaluated: int = 4096
    """examples that were never trained on, to evaluate on"""
    steps: int = 2000
    learning_rate: float = 3e-3
    """the first that was tried; add and roll are learned with it in 1000 to 2000 steps"""
    schedule: Schedule = field(default_factory=lambda: Schedule("cosine", warmup=100))
    """a slow start, and small rates at the end"""
    clip: float = 1.0
    """the seed found clipping very effective against spikes"""
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
        """The same with longer examples, where there are such."""
        return SequenceProblem(self.task, self.base, self.length, max(self.far, self.below))


class Batch(NamedTuple):
    """Examples of one length, and after how many steps of thinking they are answered."""

    examples: Examples
    length: jax.Array
    steps: jax.Array


BATCH_AXIS = Batch._make([0, None, None])  # The length and the number of steps belong to all examples.


def build(config: Config) -> Task:
    problem, far = config.problem, config.far_problem

    def init(key: jax.Array) -> Thinker:
        return Thinker(config.model, problem.vocabulary, far.inputs, far.outputs, key)

    def batch(key: jax.Array, step: jax.Array, stage: Stage) -> Batch:
        of_examples, of_steps = jax.random.split(key)
        examples = problem.draw(of_examples, config.batch_size, "train", stage.length)
        least = 1 if config.sample_steps else config.model.steps
        steps = jax.random.randint(of_steps, (), least, config.model.steps + 1)
        return Batch(examples, stage.length, steps)

    def loss(params: Thinker, batch: Batch) -> tuple[jax.Array, Metrics]:
        targets = batch.examples.targets
        if config.every_step:
            logits = all_logits(params, batch.examples)
            each = jax.vmap(cross_entropy, in_axes=(1, None))(logits, targets)
            return jnp.mean(each), _told(logits[:, -1], batch)
        logits = logits_of(params, batch.examples, batch.steps)
        return cross_entropy(logits, targets), _told(logits, batch)

    def evaluate(params: Thinker, key: jax.Array) -> Metrics:
        of_near, of_far = jax.random.split(key)
        told = report(params, problem.draw(of_near, config.evaluated, "test"), problem.vocabulary)
        if far.longest > problem.longest:
            examples = far.draw(of_far, config.evaluated, "test")
            told |= {f"far_{name}": value for name, value in _scores(params, examples).items()}
        return told

    return Task(
        init=jax.jit(init),
        data=batch,
        loss=loss,
        evaluate=evaluate,
        optimizer=optax.scale_by_adam(b2=0.98),
        memory=lambda key: config.curriculum.begin(problem.longest),
        remember=lambda stage, batch, metrics: config.curriculum.after(
            stage, metrics["exact_match"], problem.longest
        ),
        batch_axis=BATCH_AXIS,
        predict=lambda params, batch: logits_of(params, batch.examples, batch.steps),
        targets=lambda batch: batch.examples.targets,
        classes=problem.vocabulary,
    )


def logits_of(model: Thinker, examples: Examples, steps: jax.Array | int | None = None) -> jax.Array:
    """The logits of all answers: [examples, outputs, vocabulary]."""
    outputs = examples.targets.shape[1]
    return jax.vmap(lambda tokens: model(tokens, outputs, steps))(examples.inputs)


def all_logits(model: Thinker, examples: Examples) -> jax.Array:
    """The logits after each step of thinking: [examples, steps, outputs, vocabulary]."""
    outputs = examples.targets.shape[1]
    return jax.vmap(lambda tokens: model.at_every_step(tokens, outputs))(examples.inputs)


def report(model: Thinker, examples: Examples, vocabulary: int) -> dict[str, jax.Array]:
    """All that is told of an evaluation."""
    logits = logits_of(model, examples)
    answers, targets = jnp.argmax(logits, axis=-1), examples.targets
    trivial = score(trivial_answers(targets, vocabulary), targets)
    return {
        "loss": cross_entropy(logits, targets),
        **score(answers, targets)._asdict(),
        **{f"baseline_{name}": value for name, value in trivial._asdict().items()},
        **{f"place_{i}": share for i, share in enumerate(score_by_place(answers, targets))},
    }


def _scores(model: Thinker, examples: Examples) -> dict[str, jax.Array]:
    return score(jnp.argmax(logits_of(model, examples), axis=-1), examples.targets)._asdict()


def _told(logits: jax.Array, batch: Batch) -> dict[str, jax.Array]:
    """Of the batch that is trained on, so it says little; it moves the curriculum."""
    return {
        **score(jnp.argmax(logits, axis=-1), batch.examples.targets)._asdict(),
        "length": batch.length.astype(jnp.float32),
    }
