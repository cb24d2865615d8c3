"""The task: everything that training and the checks must know about what is trained."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import optax

from lapwing.core import LapwingError

from ._callback import Callback
from ._rounds import Rounds
from ._sources import Arrays, Source, Stream, peekable, positional, source_of

Params = Any
"""Any pytree of arrays."""
Batch = Any
"""Any pytree of arrays."""
Memory = Any
"""Any pytree of arrays that is kept from step to step, such as a replay buffer."""
Key = jax.Array
"""A random key of jax."""
Metrics = Mapping[str, jax.Array]
"""Scalars by name."""
ModelState = Any
"""Any pytree of arrays that a model keeps beside its parameters, such as the means of a batch norm."""
Loss = Callable[..., Any]
"""`loss(params, batch)`, with `state` and `key` where a model has them; the page on data lists the forms."""
Optimizer = optax.GradientTransformation | optax.MultiSteps | Callable[[Any], optax.GradientTransformation]


class TaskError(LapwingError, ValueError):
    """A task that cannot be trained as it is; the sentence names the place in its parameters."""


@dataclass(frozen=True)
class Penalty:
    """A term of the loss, a function of the parameters, whose weight can be changed while the run runs.

    >>> import jax.numpy as jnp
    >>> lasso = Penalty(1e-3, of=lambda params: jnp.sum(jnp.abs(params["w"])))   # Task(penalties={"lasso": lasso}, ...)
    >>> float(lasso.of({"w": jnp.array([3.0, -1.0])}))
    4.0
    """

    weight: float
    of: Callable[[Params], jax.Array]


@dataclass(frozen=True)
class Task:
    """What to train. jax traces all functions except those of `callbacks` and `rounds` and those that make an iterable.

    **Required**

    - `init(key)` returns the parameters, a tree of arrays.
    - `data`: a function `data(key, step)` that returns the batch of a step (the key differs between steps and is the
      same again when a run is repeated or resumed); `Arrays` in memory; or an iterable of batches, a function that
      returns one, a Grain or PyTorch loader (`Stream`).
    - `loss(params, batch)` returns the scalar to minimize and a dict of further scalars to log. With dropout, it is
      `loss(params, batch, key)`. A model with state (the statistics of batch normalization) has
      `loss(params, batch, state, key)`, which returns the next state as a third value, and an `init` that returns
      parameters and state. Where an update is skipped, the state does not change.

    **Optional, for training**

    - `prepare(params, batch, key)` changes the batch before the loss (an attack); no gradient flows through it.
    - `evaluate(params, key)` returns scalars to log now and then; the key is always the same. A model with state has
      `evaluate(params, key, state)`.
    - `validation`: `Arrays` or an iterable, as for `data`, read once for each evaluation. Then it is
      `evaluate(params, batch)`, or with state `evaluate(params, batch, state)`; its scalars are averaged over all
      examples. By default these are the loss and its metrics.
    - `trainable(params)` returns a tree like the parameters, of bools or boolean arrays: False is never changed.
    - `optimizer`: any optax optimizer as it is (`optax.adam(1e-2)`), or a function of the learning rate (`optax.adamw`,
      `lambda learning_rate: optax.chain(...)`). With a function, the learning rate is the config's and an array in the
      state, so it can be changed during a run without compiling again.
    - `schedule`: any optax schedule; the update of a step is multiplied by `schedule(step)`.
    - `penalties` are added to the loss, each times its weight, which is an array in the state too. Each is logged.
    - `memory(key)` and `remember(memory, batch, metrics)`, for a task that learns from what happened (a curriculum, a
      replay buffer). The batch is then `data(key, step, memory)`; after each update `remember` returns the next
      memory, from the prepared batch and the metrics of the step. It stays on the device, is part of every checkpoint
      and is rolled back with the parameters. Where an update is skipped, it does not change.
    - `losses(params, batch)`: the losses and metrics of many parameters and batches with a leading axis. `fit_many`
      uses it on a CPU instead of `jax.vmap(loss)`, where that is slow.
    - `rounds`: changes made by the host between steps (pruning).
    - `callbacks` look at the run, to draw or to report: after evaluations and at the end, for example (`Callback`).

    **Optional, for the checks** (`batch_axis` is also what `fit(..., devices=n)` splits)

    - `batch_axis`, `time_axis`: the axes of examples and of time in the batch: an int, or a prefix tree of ints as for
      `jax.vmap`, with None for what has no such axis.
    - `predict(params, batch)`, with state `predict(params, batch, state)`, returns an output per example, with the
      examples along `output_axis` and, for a sequence, time along `output_time_axis`. With `lag` n, the output at time
      t depends on inputs up to t − n only.
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
    data: Any
    loss: Loss
    prepare: Callable[[Params, Batch, Key], Batch] | None = None
    evaluate: Callable[..., Metrics] | None = None
    validation: Any = None
    trainable: Callable[[Params], Any] | None = None
    optimizer: Optimizer = optax.adam
    schedule: optax.Schedule | None = None
    penalties: Mapping[str, Penalty] = field(default_factory=dict)
    memory: Callable[[Key], Memory] | None = None
    remember: Callable[[Memory, Batch, Metrics], Memory] | None = None
    losses: Loss | None = None
    rounds: Rounds | None = None
    callbacks: Sequence[Callback] = ()
    batch_axis: Any = 0
    time_axis: Any = None
    predict: Callable[..., Any] | None = None
    output_axis: Any = 0
    output_time_axis: Any = None
    lag: int = 0
    targets: Callable[[Batch], Any] | None = None
    classes: int | None = None
    expected_findings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", peekable(self.data))
        if (self.memory is None) != (self.remember is None):
            given, missing = ("memory", "remember") if self.remember is None else ("remember", "memory")
            raise TaskError(f"a task with {given} needs {missing} too: one makes the memory, one changes it")
        if self.memory is not None and isinstance(self.source, Arrays | Stream):
            raise TaskError("a task with memory needs data(key, step, memory), not arrays or an iterable")
        if self.validation is not None and not isinstance(source_of(self.validation), Arrays | Stream):
            raise TaskError(
                "validation should be Arrays or an iterable; for a function of a key, write evaluate(params, key)"
            )
        if isinstance(getattr(self.validation, "source", self.validation), Iterator):
            raise TaskError(
                "validation is an iterator, which can be read only once, but every evaluation reads it; give a list, "
                "or a function that returns the iterator"
            )
        if positional(self.loss) not in (None, 2, 3, 4):
            raise TaskError(
                "loss should take params, batch; params, batch, key; or params, batch, state, key, but it takes "
                f"{positional(self.loss)} arguments"
            )

    @property
    def source(self) -> Source:
        """Where the batches come from: a function of key and step, `Arrays` or a `Stream`."""
        return source_of(self.data, with_memory=self.memory is not None)

    @property
    def has_state(self) -> bool:
        """Whether the model has a state beside its parameters."""
        return positional(self.loss) == 4

    @property
    def has_key(self) -> bool:
        """Whether the loss takes a random key."""
        return positional(self.loss) in (3, 4)

    @property
    def evaluates(self) -> bool:
        return self.evaluate is not None or self.validation is not None
