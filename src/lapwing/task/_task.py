"""The task: everything that training and the checks must know about what is trained."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import optax

from lapwing.core import LapwingError

from ._rounds import Rounds

Params = Any
Batch = Any
Memory = Any
Key = jax.Array
Metrics = Mapping[str, jax.Array]
Loss = Callable[[Params, Batch], tuple[jax.Array, Metrics]]


class TaskError(LapwingError, ValueError):
    """A task that cannot be trained as it is; the sentence names the place in its parameters."""


@dataclass(frozen=True)
class Penalty:
    """A term of the loss, a function of the parameters, whose weight can be changed while the run runs."""

    weight: float
    of: Callable[[Params], jax.Array]


@dataclass(frozen=True)
class Task:
    """What to train. jax traces all functions except `finish` and those of `rounds`.

    **Required**

    - `init(key)` returns the parameters, a tree of arrays.
    - `data(key, step)` returns the batch of a step. The key differs between steps and is the same again when a run is
      repeated or resumed.
    - `loss(params, batch)` returns the scalar to minimize and a dict of further scalars to log.

    **Optional, for training**

    - `prepare(params, batch, key)` changes the batch before the loss (an attack); no gradient flows through it.
    - `evaluate(params, key)` returns scalars to log now and then; the key is always the same.
    - `trainable(params)` returns a tree like the parameters, of bools or boolean arrays: False is never changed.
    - `optimizer`: an optax optimizer *without* its learning rate (`optax.scale_by_adam()`, not `optax.adam(1e-3)`).
      The learning rate is an array in the state, so changing it during a run does not recompile.
    - `schedule`: any optax schedule; the learning rate of a step is multiplied by `schedule(step)`.
    - `penalties` are added to the loss, each times its weight, which is an array in the state too. Each is logged.
    - `memory(key)` and `remember(memory, batch, metrics)`, for a task that learns from what happened (a curriculum, a
      replay buffer). The batch is then `data(key, step, memory)`; after each update `remember` returns the next
      memory, from the prepared batch and the metrics of the step. It stays on the device, is part of every checkpoint
      and is rolled back with the parameters. Where an update is skipped, it does not change.
    - `losses(params, batch)`: the losses and metrics of many parameters and batches with a leading axis. `fit_many`
      uses it on a CPU instead of `jax.vmap(loss)`, where that is slow.
    - `rounds`: changes made by the host between steps (pruning).
    - `finish(result, run)` is called at the end, to draw; the text it returns is printed.

    **Optional, for the checks** (`batch_axis` is also what `fit(..., devices=n)` splits)

    - `batch_axis`, `time_axis`: the axes of examples and of time in the batch: an int, or a prefix tree of ints as for
      `jax.vmap`, with None for what has no such axis.
    - `predict(params, batch)` returns an output per example, with the examples along `output_axis` and, for a
      sequence, time along `output_time_axis`. With `lag` n, the output at time t depends on inputs up to t − n only.
    - `targets(batch)` returns the targets; `classes` is their number.
    - `expected_findings`: names of checks that report something here which is intended, each with the reason.

    >>> import jax.numpy as jnp
    >>> task = Task(
    ...     init=lambda key: {"w": jnp.zeros(3)},
    ...     data=lambda key, step: jax.random.normal(key, (8, 3)),
    ...     loss=lambda params, x: (jnp.mean((x @ (params["w"] - 1)) ** 2), {}),
    ... )
    """

    init: Callable[[Key], Params]
    data: Callable[..., Batch]
    loss: Loss
    prepare: Callable[[Params, Batch, Key], Batch] | None = None
    evaluate: Callable[[Params, Key], Metrics] | None = None
    trainable: Callable[[Params], Any] | None = None
    optimizer: optax.GradientTransformation = field(default_factory=optax.scale_by_adam)
    schedule: optax.Schedule | None = None
    penalties: Mapping[str, Penalty] = field(default_factory=dict)
    memory: Callable[[Key], Memory] | None = None
    remember: Callable[[Memory, Batch, Metrics], Memory] | None = None
    losses: Loss | None = None
    rounds: Rounds | None = None
    finish: Callable[[Any, Any], str | None] | None = None
    batch_axis: Any = 0
    time_axis: Any = None
    predict: Callable[[Params, Batch], Any] | None = None
    output_axis: Any = 0
    output_time_axis: Any = None
    lag: int = 0
    targets: Callable[[Batch], Any] | None = None
    classes: int | None = None
    expected_findings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.memory is None) != (self.remember is None):
            given, missing = ("memory", "remember") if self.remember is None else ("remember", "memory")
            raise TaskError(f"a task with {given} needs {missing} too: one makes the memory, one changes it")
