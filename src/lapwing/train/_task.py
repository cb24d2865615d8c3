"""What to train: a handful of pure functions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import optax

from ._rounds import Rounds

if TYPE_CHECKING:
    from lapwing.journal import RunWriter

    from ._fit import FitResult

Params = Any
Batch = Any
Memory = Any
Key = jax.Array
Metrics = Mapping[str, jax.Array]


class TaskError(ValueError):
    """A task that cannot be trained as it is; the sentence names the place in its parameters."""


@dataclass(frozen=True)
class Penalty:
    """A term of the loss, a function of the parameters, whose weight can be changed while the run runs."""

    weight: float
    of: Callable[[Params], jax.Array]


@dataclass(frozen=True)
class Task:
    """Everything that `fit` must know about what it trains. All functions but `finish` and those of `rounds` are
    traced by jax.

    `init(key)` makes the parameters, a tree of arrays. `batch(key, step)` makes the data of a step; the key
    is another one at each step, and the same again when a run is repeated or resumed. `loss(params, batch)`
    gives the scalar to make small, and a dict of further scalars to log.

    Optional: `prepare(params, batch, key)` changes the batch before the loss (an attack); no gradient flows
    through it. `evaluate(params, key)` gives scalars worth knowing now and then, always with the same key.
    `trainable(params)` gives a tree like the parameters, of bools or of boolean arrays: what is False there
    stays as it is, bit by bit. `optimizer` is an optax optimizer *without* its learning rate
    (`optax.scale_by_adam()`, not `optax.adam(1e-3)`): the rate is an array in the state, so that it can
    change during a run without compiling again. `penalties` are added to the loss, each times its weight, which is an
    array in the state too; each is logged under its name. `finish(result, run)` is called at the end, to draw; what it
    returns is told to the person who watches.

    A task that learns from what happened (a curriculum, a replay memory) has a memory: `memory(key)` makes it, a tree
    of arrays; then it is `batch(key, step, memory)`, and after the update `remember(memory, batch, metrics)` gives the
    next one, from the batch as `prepare` left it and the metrics of the step. It stays on the device, is part of every
    checkpoint, goes back in a rollback, and stays as it is where an update is left out.

    `batch_axis` says along which axis of the batch its examples lie, for `fit(..., devices=n)`, which splits them: a
    number, or a tree of numbers that begins like the batch, as for `jax.vmap`; None for what belongs to all examples.

    `losses(params, batch)` is what `fit_many` computes on a CPU instead of `jax.vmap(loss)`: the losses of many
    parameters and batches, which lie in front, and their metrics. Not every loss is quick under `vmap` there.

    A task that is changed between steps, by the host (pruning), says how with `rounds`. Each round ends with a line in
    the journal and a checkpoint; what is the best loss is asked anew in each.

    >>> import jax.numpy as jnp
    >>> task = Task(
    ...     init=lambda key: {"w": jnp.zeros(3)},
    ...     batch=lambda key, step: jax.random.normal(key, (8, 3)),
    ...     loss=lambda params, x: (jnp.mean((x @ (params["w"] - 1)) ** 2), {}),
    ... )
    """

    init: Callable[[Key], Params]
    batch: Callable[..., Batch]
    loss: Callable[[Params, Batch], tuple[jax.Array, Metrics]]
    prepare: Callable[[Params, Batch, Key], Batch] | None = None
    evaluate: Callable[[Params, Key], Metrics] | None = None
    trainable: Callable[[Params], Any] | None = None
    optimizer: optax.GradientTransformation = field(default_factory=optax.scale_by_adam)
    penalties: Mapping[str, Penalty] = field(default_factory=dict)
    memory: Callable[[Key], Memory] | None = None
    remember: Callable[[Memory, Batch, Metrics], Memory] | None = None
    rounds: Rounds | None = None
    batch_axis: Any = 0
    losses: Callable[[Params, Batch], tuple[jax.Array, Metrics]] | None = None
    finish: Callable[["FitResult", "RunWriter | None"], str | None] | None = None

    def __post_init__(self) -> None:
        if (self.memory is None) != (self.remember is None):
            given, missing = ("memory", "remember") if self.remember is None else ("remember", "memory")
            raise TaskError(f"a task with {given} needs {missing} too: one makes the memory, one changes it")
