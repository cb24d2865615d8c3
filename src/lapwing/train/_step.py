"""One step: data, prepare, forward, backward, update, remember.

`_program.py` compiles the same functions fused, for training, and apart, for timing: what is timed is what is run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lapwing.task import Arrays, Batch, Memory, Metrics, Params, Stream, Task
from lapwing.trees import structure

from ._config import FitConfig
from ._feed import Fed, batch_of
from ._gradient import Aux, Gradient, Pullback, forward_and_backward
from ._mask import Mask, join, split, where_trained
from ._optimizer import effective, in_float32, make_optimizer, make_schedule
from ._state import State, key_at

SKIPPED = "skipped"  # The metric that says whether the update of a step was skipped.
_NOTHING = Fed()


class Phases(NamedTuple):
    """The phases of a step. `prepare` and `remember` are None where the task has none.

    >>> from lapwing.task import Task
    >>> from lapwing.train import FitConfig, initial_state, make_phases
    >>> task = Task(
    ...     init=lambda key: jnp.zeros(()), data=lambda key, step: 1.0, loss=lambda w, x: ((w - x) ** 2, {})
    ... )
    >>> state, mask = initial_state(task, FitConfig())
    >>> [name for name, phase in make_phases(task, mask, FitConfig())._asdict().items() if phase]
    ['data', 'forward', 'backward', 'update']
    """

    data: Callable[[State, Fed], Batch]
    prepare: Callable[[State, Batch], Batch] | None
    forward: Callable[[State, Batch], tuple[jax.Array, Aux, Pullback]]
    backward: Callable[[jax.Array, Pullback], Gradient]
    update: Callable[[State, jax.Array, Aux, Gradient], tuple[State, Metrics]]
    remember: Callable[[State, Batch, Metrics], State] | None

    def map(self, change: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> "Phases":
        """The phases that the task has, each replaced by `change(name, phase)`."""
        return Phases(*[phase and change(name, phase) for name, phase in self._asdict().items()])


def make_phases(task: Task, mask: Mask, config: FitConfig) -> Phases:
    """The phases of a step of the task, as functions that are not compiled yet.

    >>> from lapwing.train import initial_state
    >>> task = Task(
    ...     init=lambda key: jnp.zeros(()), data=lambda key, step: 1.0, loss=lambda w, x: ((w - x) ** 2, {})
    ... )
    >>> state, mask = initial_state(task, FitConfig())
    >>> phases = make_phases(task, mask, FitConfig())
    >>> float(phases.data(state, Fed())), phases.prepare is None
    (1.0, True)
    """
    source = task.source

    def data(state: State, fed: Fed) -> Batch:
        step = jnp.zeros_like(state.step) if config.overfit_batch else state.step
        if isinstance(source, Arrays | Stream):
            return batch_of(source, fed, step)
        memory = () if task.memory is None else (state.memory,)
        return source(key_at(step, state.keys.batch), step, *memory)

    def prepare(state: State, batch: Batch) -> Batch:
        assert task.prepare is not None
        return task.prepare(state.params, batch, key_at(state.step, state.keys.prepare))

    forward, backward = forward_and_backward(task, mask, config)

    optimizer, schedule = make_optimizer(task, config), make_schedule(task, config)

    def update(state: State, loss: jax.Array, aux: Aux, gradient: Gradient) -> tuple[State, Metrics]:
        norm = optax.tree.norm(in_float32(gradient))
        # An update that is not finite would spoil all that follow, so it is skipped and counted.
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        trained, fixed = split(state.params, mask)
        factor = jnp.asarray(schedule(state.step), jnp.float32)
        moved, optimizer_state = optimizer.update(
            gradient, state.optimizer, trained, finite=finite, factor=factor, value=loss, grad=gradient
        )
        trained = where_trained(mask, moved, trained)
        params = join(trained, fixed)
        after = state._replace(
            step=state.step + 1,
            params=params,
            optimizer=optimizer_state,
            model=_if_finite(finite, aux.model, state.model),
            ema=None if state.ema is None else _moved_average(finite, state.ema, params, config.ema),
        )
        controls, rate = state.controls, state.rate_name
        return after, {
            "loss": loss,
            **aux.metrics,
            "gradient_norm": norm,
            "clipped_norm": jnp.minimum(norm, controls["clip"]),
            effective(rate): controls[rate] * factor,
            SKIPPED: ~finite,
        }

    def remember(state: State, batch: Batch, metrics: Metrics) -> State:
        given = {name: value for name, value in metrics.items() if name != SKIPPED}

        def changed(memory: Memory) -> Memory:
            assert task.remember is not None
            return task.remember(memory, batch, given)

        structure(memory=state.memory, memory_after_the_step=jax.eval_shape(changed, state.memory))
        # Not `where`, which would copy all of a memory of which a step changes a few rows.
        memory = jax.lax.cond(metrics[SKIPPED], lambda memory: memory, changed, state.memory)
        return state._replace(memory=memory)

    # The first batch at every step needs the first memory at every step.
    remembers = task.remember is not None and not config.overfit_batch
    return Phases(
        data, prepare if task.prepare else None, forward, backward, update, remember if remembers else None
    )


def take_step(phases: Phases, state: State, fed: Fed = _NOTHING) -> tuple[State, Metrics]:
    """One update; the metrics are those of the parameters before it.

    >>> from lapwing.train import initial_state
    >>> task = Task(
    ...     init=lambda key: jnp.zeros(()), data=lambda key, step: 1.0, loss=lambda w, x: ((w - x) ** 2, {})
    ... )
    >>> state, mask = initial_state(task, FitConfig())
    >>> after, metrics = take_step(make_phases(task, mask, FitConfig()), state)
    >>> int(after.step), float(metrics["loss"])
    (1, 1.0)
    """
    batch = phases.data(state, fed)
    if phases.prepare:
        batch = phases.prepare(state, batch)
    loss, aux, pullback = phases.forward(state, batch)
    gradient = phases.backward(loss, pullback)
    state, metrics = phases.update(state, loss, aux, gradient)
    if phases.remember:
        state = phases.remember(state, batch, metrics)
    return state, metrics


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Packed:
    """The metrics of some steps as one array, for one transfer: [steps, names], or [steps, runs, names]."""

    numbers: jax.Array
    names: tuple[str, ...] = field(metadata={"static": True})


def take_steps(phases: Phases, state: State, count: int, fed: Fed = _NOTHING) -> tuple[State, Packed]:
    """`count` updates in one computation, with the metrics of all of them."""
    names: list[str] = []

    def step(state: State, each: Any) -> tuple[State, jax.Array]:
        state, metrics = take_step(phases, state, fed._replace(each=each))
        names[:] = metrics
        return state, _row(metrics)

    state, numbers = jax.lax.scan(step, state, fed.each, length=count)
    return state, Packed(numbers, tuple(names))


def _row(metrics: Metrics) -> jax.Array:
    """All metrics in the widest float dtype among them."""
    kinds = [jnp.result_type(value) for value in metrics.values()]
    widest = jnp.result_type(jnp.float32, *(kind for kind in kinds if jnp.issubdtype(kind, jnp.floating)))
    return jnp.stack([jnp.asarray(value, widest) for value in metrics.values()], axis=-1)


def _if_finite(finite: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, old)


def _moved_average(finite: jax.Array, average: Params, params: Params, decay: float) -> Params:
    return jax.tree.map(
        lambda old, new: jnp.where(finite, decay * old + (1 - decay) * new, old),
        average,
        params,
    )
