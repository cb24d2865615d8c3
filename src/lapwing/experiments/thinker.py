"""A looped network learns small problems, and solves larger ones by thinking longer. See docs/thinking-longer.md.

In training it thinks for a random number of steps, through which no gradient flows, and then for a few through which
one does, and must have the answer in the last of those: from wherever it is, some steps later the answer is there, and
stays. (Progressive loss, of Deep Thinking networks; deep supervision, of HRM and TRM.)
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool

from lapwing.data.problems import PROBLEMS, Instances, Problem, ProblemError
from lapwing.models import Looped, LoopedSize
from lapwing.task import Task
from lapwing.train import ConfigError, FitConfig, Schedule, ScheduleKind, check_option

from ._evaluate import Evaluated, Trained
from ._thinker_batch import Batch, Kept, draw_batch, first_kept, think_before, with_kept
from ._thinker_defaults import DEFAULTS
from ._thinker_evaluation import Evaluation, evaluate_thinking
from ._thinker_halting import SURE, halting_loss

Metrics = Mapping[str, Array]
Name = Literal[
    "addition",
    "addition_text",
    "multiplication",
    "prefix_sums",
    "parity",
    "sorting",
    "reversal",
    "maze",
    "sudoku",
]
if TYPE_CHECKING:
    ByProblem = int  # What `__post_init__` leaves there.
    ShareByProblem = float
    KindByProblem = ScheduleKind
else:
    ByProblem = int | None
    ShareByProblem = float | None
    KindByProblem = ScheduleKind | None

BY_PROBLEM: Any = None
"""An option whose default is in `DEFAULTS`."""


@dataclass(frozen=True)
class ThinkerSchedule(Schedule):
    """The learning rate over the steps, of a kind that suits the problem."""

    kind: KindByProblem = BY_PROBLEM
    """constant, cosine, points or plateau, as for other experiments; default: cosine, for maze constant"""
    warmup: int = 100


@dataclass(frozen=True)
class Config(FitConfig):
    """A looped network learns a problem in small sizes."""

    problem: Name = "addition"
    """what to learn: addition, addition_text, multiplication, prefix_sums, parity, sorting, reversal, maze or sudoku"""
    base: int | None = None
    """base of numbers, or the number of symbols; default: 10, for prefix_sums and parity 2 (bits)"""
    size: ByProblem = BY_PROBLEM
    """largest size in training: digits, symbols, or positions of a side; default: addition 10, addition_text 8,
    multiplication 3, prefix_sums 32, parity 16, sorting 8, reversal 8, maze 9, sudoku 9"""
    least: ByProblem = BY_PROBLEM
    """smallest size in training; default: 1, for prefix_sums, maze and sudoku the size"""
    far: ByProblem = BY_PROBLEM
    """also evaluate at this size; 0: do not; default: 4 times the size for addition, prefix_sums and parity, twice for
    addition_text, multiplication, sorting, reversal and maze, 0 for sudoku and dense models"""
    hard: float = 0.0
    """share of hard problems in training, of the same sizes: sums with long carries; others than addition have none"""
    model: LoopedSize = field(default_factory=LoopedSize)
    gradient_steps: ByProblem = BY_PROBLEM
    """thinking steps through which the gradient flows; default: 10, prefix_sums 16, parity 16, maze 30, sudoku 8"""
    loss_steps: ByProblem = BY_PROBLEM
    """how many of those, the last ones, must have the answer: with few there is time to find it by a rule that holds
    for larger problems too; default: half of them, maze 2"""
    before: ByProblem = BY_PROBLEM
    """a batch thinks for up to this many steps before, without a gradient; default: 30, prefix_sums 40, parity 20,
    sudoku 16"""
    memory: Literal["save", "sqrt", "nested"] = "save"
    """what is kept of the steps with a gradient: save (all), or sqrt or nested, which compute again what they do not
    keep, for the same gradient through many steps"""
    thinking_steps: ByProblem = BY_PROBLEM
    """thinking steps of an evaluation, at the size of the training; at others in proportion to the number of positions;
    default: before + gradient_steps, for maze 40, sudoku 96"""
    from_start: ShareByProblem = BY_PROBLEM
    """share of the batches that do not think before; default: 0.3, for maze 0.99"""
    kept: ShareByProblem = BY_PROBLEM
    """share of the problems of a batch that stay in the next one, which thinks about them further; default: 0, for
    sudoku 0.9"""
    latents: int = 1
    """states from which an evaluation thinks about a problem; the surest answer counts"""
    random_starts: float = 0.0
    """share of the batches that begin at a random state, for more than one latent"""
    batch_size: ByProblem = BY_PROBLEM
    """problems in a batch; default: 128, addition_text 64, prefix_sums 64, maze 32, sudoku 16"""
    evaluated: ByProblem = BY_PROBLEM
    """held-out problems of an evaluation; default: 512, maze 64, sudoku 128"""
    steps: ByProblem = BY_PROBLEM
    """number of updates; default: 1600, for maze 1000"""
    learning_rate: float = 3e-3
    schedule: Schedule = field(default_factory=ThinkerSchedule)
    clip: float = 1.0
    weight_decay: float = 0.01
    ema: float = 0.995

    def __post_init__(self) -> None:
        self._fill_in()
        super().__post_init__()
        for name in ("batch_size", "evaluated", "gradient_steps", "loss_steps", "thinking_steps", "latents"):
            check_option(self, name, getattr(self, name) >= 1, "at least 1")
        known = not self.model.halting or self.gradient_steps >= 2
        check_option(self, "gradient_steps", known, "at least 2, to learn when to halt")
        most = self.gradient_steps
        check_option(self, "loss_steps", self.loss_steps <= most, f"at most gradient_steps ({most})")
        check_option(self, "before", self.before >= 0, "at least 0")
        for name in ("from_start", "kept", "random_starts", "hard"):
            check_option(self, name, 0 <= getattr(self, name) <= 1, "from 0 to 1")
        check_option(self, "size", self.size >= 1, "at least 1")
        check_option(self, "least", 1 <= self.least <= self.size, f"from 1 to size ({self.size})")
        self._check_sizes()
        check_option(self, "far", self.far == 0 or self.far >= self.size, "0, or at least size")
        fixed = self.model.mixer == "dense" and self.far > self.size
        check_option(self, "far", not fixed, f"0 or size ({self.size}), as a dense model has one size")
        self.check_reach(max(self.size, self.far))

    def _fill_in(self) -> None:
        """Options that are not given become those of the problem, so that the run folder says what they were."""
        plain = PROBLEMS[self.problem]()
        check_option(
            self, "base", self.base is None or hasattr(plain, "base"), f"left out for a {self.problem}"
        )
        check_option(
            self, "hard", not self.hard or hasattr(plain, "hard"), f"0, as {self.problem} has no hard ones"
        )
        defaults = DEFAULTS[self.problem]
        mixer = self.model.mixer or defaults.mixer
        own = defaults.options(plain, self.size, mixer) | {"base": getattr(plain, "base", None)}
        for name, value in own.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if self.loss_steps is None:
            asked = defaults.loss_steps or (self.gradient_steps + 1) // 2
            object.__setattr__(self, "loss_steps", min(asked, self.gradient_steps))
        if self.thinking_steps is None:
            steps = defaults.thinking_steps or self.before + self.gradient_steps
            object.__setattr__(self, "thinking_steps", steps)
        kind = self.schedule.kind or defaults.schedule
        object.__setattr__(self, "schedule", replace(self.schedule, kind=kind))
        positions = self.model.positions or (defaults.positions if mixer == "attention" else "rotary")
        object.__setattr__(self, "model", replace(self.model, mixer=mixer, positions=positions))

    def _check_sizes(self) -> None:
        for name in ("size", "least", "far"):
            try:
                self.kind.positions(getattr(self, name) or self.size)
            except ProblemError as error:
                raise ConfigError(f"{name}{str(error).removeprefix('size')}") from None

    @property
    def kind(self) -> Problem:
        """The problem, with its options."""
        found: Any = PROBLEMS[self.problem]
        return found() if self.base is None else found(base=self.base)

    def harder(self, share: float) -> Problem | None:
        """The problem with a share of hard instances; None if it has no such."""
        kind: Any = self.kind
        return replace(kind, hard=share) if hasattr(kind, "hard") else None

    def check_reach(self, size: int) -> None:
        """Raises an error if numbers of this size have places that the model has no vector for."""
        longest = self.kind.longest_number(size)
        if self.model.positions == "abacus" and longest > self.model.reach:
            raise ConfigError(
                f"model.reach should be at least {longest}, the most places of a number of size {size}, but is "
                f"{self.model.reach}; train with a larger one, or ask for smaller sizes"
            )

    def thinking(self, size: int) -> int:
        """Steps to think about a problem of a size, in proportion to the number of positions."""
        return round(self.thinking_steps * max(1.0, size / self.size) ** self.kind.dimensions)


def build(config: Config) -> Task:
    problem = config.kind
    trained = config.harder(config.hard) or problem

    def init(key: Array) -> Looped:
        where, groups = problem.positions(config.size), problem.groups(config.size)
        return Looped(
            config.model,
            problem.tokens,
            problem.classes,
            where,
            key,
            groups,
            problem.separators,
            problem.given,
        )

    def data(key: Array, step: Array) -> Batch:
        return draw_batch(config, trained, key)

    def data_with_kept(key: Array, step: Array, kept: Kept) -> Batch:
        return with_kept(config, data(key, step), kept, jax.random.fold_in(key, 6))

    def in_precision(params: Looped) -> Looped:
        return jax.tree.map(lambda leaf: leaf.astype(config.precision), params)

    def think_kept(params: Looped, batch: Batch, key: Array) -> Batch:
        model = in_precision(params)
        recalled = model.recall(batch.instances.inputs, batch.drawn)
        return batch._replace(state=think_before(config, model, batch, recalled))

    def loss(params: Looped, batch: Batch) -> tuple[Array, Metrics]:
        states, early = thought(params, batch), config.gradient_steps - config.loss_steps
        logits = params.logits(states[early:])
        answers = jnp.argmax(logits, axis=-1)
        metrics = {"exact": exact(problem, batch.instances, answers[-1])}
        answering = cross_entropy(logits, batch.instances.targets)
        if params.halting is None:
            return answering, metrics
        # The answers of the steps before are read here alone, without a gradient.
        others = jnp.argmax(jax.lax.stop_gradient(params.logits(states[:early])), axis=-1)
        every = jnp.concatenate([others, answers])
        right = jax.vmap(problem.right, (None, 0))(batch.instances, every)
        halting = halting_loss(params.halting, states, right, asks(batch.instances))
        return answering + halting, {**metrics, "answer_loss": answering, "halting_loss": halting}

    def thought(params: Looped, batch: Batch) -> Array:
        recalled = params.recall(batch.instances.inputs, batch.drawn)
        # Problems that are kept were thought about when the batch was prepared.
        state = think_before(config, params, batch, recalled) if batch.state is None else batch.state
        return params.unrolled(state, recalled, config.gradient_steps, config.memory)

    def evaluate(params: Looped, key: Array) -> Metrics:
        found = {}
        for far, size in {"": config.size, "far_": config.far}.items():
            for hard, kind in {"": problem, "hard_": config.harder(1.0)}.items():
                if size and kind:
                    instances = kind.draw(key, config.evaluated, size, "test")
                    found |= {f"{far}{hard}{name}": value for name, value in solved(params, instances, size)}
        return found

    def solved(params: Looped, instances: Instances, size: int) -> Iterator[tuple[str, Array]]:
        steps = config.thinking(size)
        for name, times in (("exact", 1), ("exact_longer", 2)):
            answers = jnp.argmax(params(instances.inputs, times * steps), axis=-1)
            yield name, exact(problem, instances, answers)
        if config.latents > 1:
            answers = params.best_of(instances.inputs, steps, config.latents)
            yield "exact_best_of", exact(problem, instances, answers)
        if config.latents > 1 and params.halting:
            answers = params.best_of(instances.inputs, steps, config.latents, "halting")
            yield "exact_best_of_halting", exact(problem, instances, answers)
        if params.halting:
            halted = params.until_sure(instances.inputs, 2 * steps, SURE)
            yield "exact_halted", exact(problem, instances, halted.answers)
            yield "steps_halted", jnp.mean(halted.steps)

    batches: Any = {"data": data}
    if config.kept:
        batches = {
            "data": data_with_kept,
            "prepare": think_kept,
            "memory": lambda key: first_kept(in_precision(init(key)), draw_batch(config, trained, key)),
            "remember": lambda kept, batch, metrics: Kept(batch.instances, batch.state),
        }
    of_states = 0 if config.kept else None
    axes: Any = Batch(Instances(0, 0), None, None, None, of_states, of_states)  # pyright: ignore[reportArgumentType]
    return Task(
        init=jax.jit(init),
        loss=loss,
        evaluate=evaluate,
        optimizer=functools.partial(optax.adam, b2=0.98),
        batch_axis=axes,
        predict=lambda params, batch: params.logits(thought(params, batch)[-1]),
        **batches,
    )


def exact(problem: Problem, instances: Instances, answers: Array) -> Array:
    """The share of problems that are solved, of those that ask something."""
    return jnp.sum(problem.right(instances, answers)) / jnp.maximum(jnp.sum(asks(instances)), 1)


def asks(instances: Instances) -> Bool[Array, " count"]:
    """Whether a problem asks for anything."""
    return jnp.any(instances.targets >= 0, axis=tuple(range(1, instances.targets.ndim)))


def cross_entropy(logits: Array, targets: Array) -> Array:
    """The mean over all that is asked; `logits` may have further axes in front."""
    every = jnp.broadcast_to(targets, logits.shape[:-1])
    asked = every >= 0
    # A mask instead of an index: the gradient of an index is a scatter, which is slow on a GPU if it is to have the
    # same bits every time.
    right = jnp.where(jnp.arange(logits.shape[-1]) == every[..., None], logits, 0.0)
    losses = jax.nn.logsumexp(logits, axis=-1) - jnp.sum(right, axis=-1)
    return jnp.sum(jnp.where(asked, losses, 0.0)) / jnp.maximum(jnp.sum(asked), 1)


def model(config: Config, params: Looped) -> Looped:
    """The trained network: a function of inputs and a number of thinking steps that returns logits."""
    return params


def evaluate_run(trained: Trained, options: Evaluation) -> Evaluated:
    return evaluate_thinking(trained, options)
