"""A looped network learns small problems, and solves larger ones by thinking longer. See docs/thinking-longer.md.

In training it thinks for a random number of steps, through which no gradient flows, and then for a few through which
one does, and must have the answer in the second half of those: from wherever it is, some steps later the answer is
there, and stays. (Progressive loss, of Deep Thinking networks; deep supervision, of HRM and TRM.)
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from lapwing.data.problems import PROBLEMS, Instances, Problem
from lapwing.models import Looped, LoopedSize
from lapwing.task import Task
from lapwing.train import FitConfig, Schedule, check_option

from ._evaluate import Evaluated, Trained
from ._thinker_evaluation import Evaluation, evaluate_thinking

Metrics = Mapping[str, Array]
Name = Literal["addition", "multiplication", "prefix_sums", "parity", "sorting", "reversal", "maze", "sudoku"]


@dataclass(frozen=True)
class Config(FitConfig):
    """A looped network learns a problem in small sizes."""

    problem: Name = "addition"
    """what to learn: addition, multiplication, prefix_sums, parity, sorting, reversal, maze or sudoku"""
    base: int = 10
    """base of numbers, or the number of symbols"""
    size: int = 10
    """largest size in training: digits, bits or symbols"""
    least: int = 1
    """smallest size in training"""
    far: int = 40
    """also evaluate at this size; 0: do not"""
    model: LoopedSize = field(default_factory=LoopedSize)
    gradient_steps: int = 10
    """thinking steps through which the gradient flows; the loss is that of the second half of them"""
    before: int = 30
    """a batch thinks for up to this many steps before, without a gradient"""
    from_start: float = 0.3
    """share of the batches that do not think before"""
    latents: int = 1
    """states from which an evaluation thinks about a problem; the surest answer counts"""
    random_starts: float = 0.0
    """share of the batches that begin at a random state, for more than one latent"""
    batch_size: int = 128
    """problems in a batch"""
    evaluated: int = 512
    """held-out problems of an evaluation"""
    steps: int = 1600
    learning_rate: float = 3e-3
    schedule: Schedule = field(default_factory=lambda: Schedule("cosine", warmup=100))
    clip: float = 1.0
    weight_decay: float = 0.01
    ema: float = 0.995

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("batch_size", "evaluated", "gradient_steps", "latents"):
            check_option(self, name, getattr(self, name) >= 1, "at least 1")
        check_option(self, "before", self.before >= 0, "at least 0")
        for name in ("from_start", "random_starts"):
            check_option(self, name, 0 <= getattr(self, name) <= 1, "from 0 to 1")
        check_option(self, "size", self.size >= 1, "at least 1")
        check_option(self, "least", 1 <= self.least <= self.size, f"from 1 to size ({self.size})")
        check_option(self, "far", self.far == 0 or self.far >= self.size, "0, or at least size")
        fixed = self.model.mixer == "dense" and self.far > self.size
        check_option(self, "far", not fixed, f"0 or size ({self.size}), as a dense model has one size")

    @property
    def kind(self) -> Problem:
        """The problem, with its options."""
        found: Any = PROBLEMS[self.problem]
        return found(base=self.base) if "base" in found.__dataclass_fields__ else found()

    def thinking(self, size: int) -> int:
        """Steps to think about a problem of a size: in proportion to those of training."""
        return round((self.before + self.gradient_steps) * max(1.0, size / self.size))


class Batch(NamedTuple):
    """Problems, how long to think before the steps with a gradient, and from which state: 0 is that of zeros."""

    instances: Instances
    before: Int[Array, ""]
    start: Int[Array, ""]


def build(config: Config) -> Task:
    problem = config.kind

    def init(key: Array) -> Looped:
        where, groups = problem.positions(config.size), problem.groups(config.size)
        return Looped(config.model, problem.tokens, problem.classes, where, key, groups)

    def batch(key: Array, step: Array) -> Batch:
        of_problems, of_share, of_steps, of_random, of_start = jax.random.split(key, 5)
        instances = problem.draw(of_problems, config.batch_size, config.size, "train", config.least)
        before = jax.random.randint(of_steps, (), 0, config.before + 1)
        at_start = jax.random.uniform(of_share) < config.from_start
        at_random = jax.random.uniform(of_random) < config.random_starts
        start = jax.random.randint(of_start, (), 1, 2**30)
        return Batch(instances, jnp.where(at_start, 0, before), jnp.where(at_random, start, 0))

    def loss(params: Looped, batch: Batch) -> tuple[Array, Metrics]:
        states = thought(params, batch)
        logits = params.logits(states[config.gradient_steps // 2 :])
        answers = jnp.argmax(logits[-1], axis=-1)
        return cross_entropy(logits, batch.instances.targets), {
            "exact": exact(problem, batch.instances, answers)
        }

    def thought(params: Looped, batch: Batch) -> Array:
        inputs = batch.instances.inputs
        recalled = params.recall(inputs)
        state = params.think(params.start(inputs, batch.start), recalled, batch.before)
        return params.unrolled(state, recalled, config.gradient_steps)

    def evaluate(params: Looped, key: Array) -> Metrics:
        found = {}
        for name, size in {"": config.size, "far_": config.far}.items():
            if size:
                instances = problem.draw(key, config.evaluated, size, "test")
                steps = config.thinking(size)
                for more, times in (("", 1), ("_longer", 2)):
                    answers = jnp.argmax(params(instances.inputs, times * steps), axis=-1)
                    found[f"{name}exact{more}"] = exact(problem, instances, answers)
                if config.latents > 1:
                    answers = params.best_of(instances.inputs, steps, config.latents)
                    found[f"{name}exact_best_of"] = exact(problem, instances, answers)
        return found

    return Task(
        init=jax.jit(init),
        data=batch,
        loss=loss,
        evaluate=evaluate,
        optimizer=functools.partial(optax.adam, b2=0.98),
        batch_axis=Batch(Instances(0, 0), None, None),  # pyright: ignore[reportArgumentType]
        predict=lambda params, batch: params.logits(thought(params, batch)[-1]),
    )


def exact(problem: Problem, instances: Instances, answers: Array) -> Array:
    """The share of problems that are solved, of those that ask something."""
    asked = jnp.any(instances.targets >= 0, axis=tuple(range(1, instances.targets.ndim)))
    return jnp.sum(problem.right(instances, answers)) / jnp.maximum(jnp.sum(asked), 1)


def cross_entropy(logits: Array, targets: Array) -> Array:
    """The mean over all that is asked; `logits` may have further axes in front."""
    every = jnp.broadcast_to(targets, logits.shape[:-1])
    asked = every >= 0
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.where(asked, every, 0))
    return jnp.sum(jnp.where(asked, losses, 0.0)) / jnp.maximum(jnp.sum(asked), 1)


def model(config: Config, params: Looped) -> Looped:
    """The trained network: a function of inputs and a number of thinking steps that returns logits."""
    return params


def evaluate_run(trained: Trained, options: Evaluation) -> Evaluated:
    return evaluate_thinking(trained, options)
