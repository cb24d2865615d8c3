"""What the doctor examines: the step that `fit` compiles, in the state with which a run of this config begins.

Nothing of the step is built again here. The batch, the loss with its penalties, the masked gradient and the update
(clipping, schedule, weight decay, the task's optimizer and memory) are those of `make_phases` and `take_step`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr
from jaxtyping import Array, Float, PyTree

from lapwing.jaxprs import readable
from lapwing.task import Arrays, Batch, Metrics, Params, Stream, Task
from lapwing.train import (
    Fed,
    FitConfig,
    Phases,
    State,
    check_data,
    evaluation_names,
    first_feds,
    full_loss,
    initial_state,
    key_at,
    make_phases,
    parts_of,
    take_step,
)

from ._partition import by_path

_MOST_FED = 64
_FIRST_FED = 4  # As many as the quick checks need: the workers of a loader are slow to start.


class Training:
    """The first steps of a run: `step` is compiled once, on first use, and shared by all checks.

    The state is the one after a warm-up of the learning rate: at its start hardly any update is large enough to see.
    """

    def __init__(self, task: Task, config: FitConfig) -> None:
        check_data(task)
        state, self.mask = initial_state(task, config)
        if task.rounds is not None and task.rounds.loss is not None:
            task = dataclasses.replace(task, loss=task.rounds.loss(jax.device_get(state.params)))
        self.task, self.config = task, config
        self.state: State = state._replace(step=state.step + config.schedule.warmup)
        self.phases = make_phases(task, self.mask, config)
        self.take_step = functools.partial(take_step, self.phases)
        self._feed = _FirstFed(task, config)
        self._step = jax.jit(self.take_step)
        is_fed = isinstance(task.source, Arrays | Stream)
        self.step: Callable[[State], tuple[State, Metrics]] = self._fed_step if is_fed else self._step
        self.loss = _loss(self.phases, self.state)
        self._data = jax.jit(self.phases.data)
        self._prepare = None if self.phases.prepare is None else jax.jit(self.phases.prepare)

    @functools.cached_property
    def traced(self) -> tuple[ClosedJaxpr, Any]:
        """The program of a step, and the shapes and dtypes of its results."""
        return readable(self.take_step, return_shape=True)(self.state, self.fed())

    def _fed_step(self, state: State) -> tuple[State, Metrics]:
        """A step with what the host feeds to it; the first of that where a check traces the step."""
        try:
            number = int(state.step - self.state.step)
        except jax.errors.ConcretizationTypeError:
            number = 0
        return self._step(state, self.fed(number))

    def fed(self, number: int = 0) -> Fed:
        """What a step gets from the host."""
        return self._feed.of(number)

    @property
    def params(self) -> Params:
        return self.state.params

    def raw_batch(self, number: int) -> Batch:
        """The batch of a step as `task.data` returns it."""
        return self._data(self._at(number), self.fed(number))

    def batch(self, number: int = 0) -> Batch:
        """The batch of a step as the loss sees it, after `task.prepare`."""
        return self.prepare(self.raw_batch(number), number)

    def prepare(self, batch: Batch, number: int = 0) -> Batch:
        return batch if self._prepare is None else self._prepare(self._at(number), batch)

    def predict(self, batch: Batch) -> Any:
        """The output of the model for a batch, as the task defines it."""
        assert self.task.predict is not None
        state = (self.state.model,) if self.task.has_state else ()
        return self.task.predict(self.params, batch, *state)

    def loss_as_written(self, params: Params, batch: Batch) -> Any:
        """What `task.loss` returns, with the state and the key that it takes, if any."""
        state = (self.state.model,) if self.task.has_state else ()
        return self.task.loss(params, batch, *state, *((jax.random.key(0),) if self.task.has_key else ()))

    def one_loss(self, params: Params, batch: Batch) -> Float[Array, ""]:
        """The loss of a batch as a whole, in the precision of the run, without its penalties."""
        state = self.state
        key = None if state.keys.loss is None else key_at(state.step, state.keys.loss)
        return full_loss(self.task, self.config)(params, batch, state.model, key)[0]

    def parts(self, batch: Batch) -> Batch:
        """The parts of a batch over which a step accumulates its gradient, along a new leading axis."""
        return parts_of(batch, self.task.batch_axis, self.config.accumulate)

    def plain_loss(self, params: Params, batch: Batch) -> Float[Array, ""]:
        """The loss of a step with its penalties, computed without its derivative: its program shows the functions with
        a custom derivative, which a trace of the gradient replaces by their rules."""
        task, state, loss_of = self.task, self.state, full_loss(self.task, self.config)
        key = None if state.keys.loss is None else key_at(state.step, state.keys.loss)
        terms = [state.penalties[name] * penalty.of(params) for name, penalty in task.penalties.items()]
        parts = self.config.accumulate
        if parts == 1:
            return sum(terms, start=loss_of(params, batch, state.model, key)[0])

        def of_part(model: Any, numbered: Any) -> Any:
            number, part = numbered
            own = None if key is None else jax.random.fold_in(key, number)
            loss, aux = loss_of(params, part, model, own)
            return aux.model, loss

        numbered = jnp.arange(parts), parts_of(batch, task.batch_axis, parts)
        return sum(terms, start=jnp.mean(jax.lax.scan(of_part, state.model, numbered)[1]))

    def batch_shapes(self) -> Batch:
        """The shapes and dtypes of a batch as the loss sees it; nothing is compiled."""
        prepare = self.phases.prepare or (lambda state, batch: batch)
        return jax.eval_shape(
            lambda state, fed: prepare(state, self.phases.data(state, fed)), self.state, self.fed()
        )

    def gradient(self, params: Params, batch: Batch) -> PyTree:
        """The gradient of the trained parameters, as a step computes it; None for a leaf that is not trained."""
        loss, _, pullback = self.phases.forward(self.state._replace(params=params), batch)
        return self.phases.backward(loss, pullback)

    def step_on_one_batch(self, state: State) -> tuple[State, float]:
        """A step that draws the first batch whatever came before, and the loss without its penalties."""
        after, metrics = self.step(state._replace(step=self.state.step, memory=self.state.memory))
        penalties = sum(float(w * metrics[name]) for name, w in jax.device_get(state.penalties).items())
        return after, float(metrics["loss"]) - penalties

    def evaluation_names(self) -> list[str] | None:
        """The metrics of an evaluation, if they can be known without one."""
        return evaluation_names(self.task, self.config, self.state)

    def trained_paths(self) -> list[str]:
        """The paths of the leaves that are trained, wholly or in part."""
        return [path for path, mask in by_path(self.mask, "params").items() if mask is not False]

    def _at(self, number: int) -> State:
        return self.state._replace(step=self.state.step + jnp.int32(number))


class _FirstFed:
    """What the host feeds to the first steps: read when asked for, and kept."""

    def __init__(self, task: Task, config: FitConfig) -> None:
        self._task, self._config = task, config
        self._read: list[Fed] = []

    def of(self, number: int) -> Fed:
        """The fed of a step; steps after the last one that was read start again from the first."""
        if not self._read or (number >= len(self._read) and len(self._read) < _MOST_FED):
            wanted = min(max(2 * len(self._read), number + 1, _FIRST_FED), _MOST_FED)
            self._read = first_feds(self._task, self._config, wanted)
        return self._read[number % len(self._read)]


def _loss(phases: Phases, state: State) -> Callable[[Params, Batch], Float[Array, ""]]:
    """The loss of a step as a function whose derivative, for whoever takes it, is the gradient of the step."""

    def forward(params: Params, batch: Batch) -> Any:
        return phases.forward(state._replace(params=params), batch)

    @jax.custom_vjp
    def loss(params: Params, batch: Batch) -> Float[Array, ""]:
        return forward(params, batch)[0]

    def forward_pass(params: Params, batch: Batch) -> Any:
        value, _, pullback = forward(params, batch)
        return value, (value, pullback)

    def backward_pass(saved: Any, slope: Float[Array, ""]) -> Any:
        # None, for leaves that are not trained and for the batch, is a derivative of zero.
        return jax.tree.map(lambda g: (g * slope).astype(g.dtype), phases.backward(*saved)), None

    loss.defvjp(forward_pass, backward_pass)
    return loss
