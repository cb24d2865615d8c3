"""One step: data, prepare, forward, backward, update, remember.

`_program.py` compiles the same functions fused, for training, and apart, for timing: what is timed is what is run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lapwing.task import Batch, Memory, Metrics, Params, Task, TaskError
from lapwing.trees import structure

from ._config import FitConfig
from ._mask import Mask, join, split, where_trained
from ._optimizer import in_float32, make_optimizer, make_schedule
from ._state import State, key_at

Gradient = Params
_OWN_METRICS = ("loss", "gradient_norm", "clipped_norm", "learning_rate", "step", "time")
SKIPPED = "skipped"  # The metric that says whether the update of a step was skipped.
Pullback = Any  # From the forward to the backward pass: a tree of arrays, as jax.vjp makes it.


class Phases(NamedTuple):
    """The phases of a step. `prepare` and `remember` are None where the task has none."""

    data: Callable[[State], Batch]
    prepare: Callable[[State, Batch], Batch] | None
    forward: Callable[[State, Batch], tuple[jax.Array, Metrics, Pullback]]
    backward: Callable[[jax.Array, Pullback], Gradient]
    update: Callable[[State, jax.Array, Metrics, Gradient], tuple[State, Metrics]]
    remember: Callable[[State, Batch, Metrics], State] | None

    def map(self, change: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> "Phases":
        """The phases that the task has, each replaced by `change(name, phase)`."""
        return Phases(*[phase and change(name, phase) for name, phase in self._asdict().items()])


def make_phases(task: Task, mask: Mask, config: FitConfig) -> Phases:
    def data(state: State) -> Batch:
        step = jnp.zeros_like(state.step) if config.overfit_batch else state.step
        memory = () if task.memory is None else (state.memory,)
        return task.data(key_at(step, state.keys.batch), step, *memory)

    def prepare(state: State, batch: Batch) -> Batch:
        assert task.prepare is not None
        return task.prepare(state.params, batch, key_at(state.step, state.keys.prepare))

    forward, backward = forward_and_backward(task, mask)

    optimizer, schedule = make_optimizer(task, config), make_schedule(task, config)

    def update(state: State, loss: jax.Array, metrics: Metrics, gradient: Gradient) -> tuple[State, Metrics]:
        norm = optax.tree.norm(in_float32(gradient))
        # An update that is not finite would spoil all that follow, so it is skipped and counted.
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        trained, fixed = split(state.params, mask)
        factor = jnp.asarray(schedule(state.step), jnp.float32)
        updates, optimizer_state = optimizer.update(
            gradient, state.optimizer, trained, finite=finite, factor=factor
        )
        trained = where_trained(mask, optax.apply_updates(trained, updates), trained)
        after = state._replace(step=state.step + 1, params=join(trained, fixed), optimizer=optimizer_state)
        return after, {
            "loss": loss,
            **metrics,
            "gradient_norm": norm,
            "clipped_norm": jnp.minimum(norm, state.controls.clip),
            "learning_rate": state.controls.learning_rate * factor,
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


def forward_and_backward(task: Task, mask: Mask, many: bool = False) -> tuple[Any, Any]:
    """The phases of the loss and its gradient; with `many`, of many runs along a leading axis, by `task.losses`."""
    over = jax.vmap if many else lambda function: function

    def losses(params: Params, batch: Batch) -> tuple[jax.Array, Metrics]:
        return (
            task.losses(params, batch) if many and task.losses else _checked(task.loss(params, batch), task)
        )

    def forward(state: State, batch: Batch) -> tuple[jax.Array, Metrics, Pullback]:
        trained, fixed = split(state.params, mask)

        def loss_of(trained: Params) -> tuple[jax.Array, Metrics]:
            params = join(trained, fixed)
            loss, metrics = losses(params, batch)
            terms = {name: over(penalty.of)(params) for name, penalty in task.penalties.items()}
            weights = state.penalties
            return sum((weights[name] * terms[name] for name in terms), start=loss), {**metrics, **terms}

        loss, pullback, metrics = jax.vjp(loss_of, trained, has_aux=True)
        return loss, metrics, pullback

    def backward(loss: jax.Array, pullback: Pullback) -> Gradient:
        # The loss of a run depends on its own parameters only, so one pullback gives the gradient of each.
        (gradient,) = pullback(jnp.ones_like(loss))
        return over(lambda g: where_trained(mask, g, jax.tree.map(jnp.zeros_like, g)))(gradient)

    return forward, backward


def take_step(phases: Phases, state: State) -> tuple[State, Metrics]:
    """One update; the metrics are those of the parameters before it."""
    batch = phases.data(state)
    if phases.prepare:
        batch = phases.prepare(state, batch)
    loss, metrics, pullback = phases.forward(state, batch)
    gradient = phases.backward(loss, pullback)
    state, metrics = phases.update(state, loss, metrics, gradient)
    if phases.remember:
        state = phases.remember(state, batch, metrics)
    return state, metrics


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Packed:
    """The metrics of some steps as one array, for one transfer: [steps, names], or [steps, runs, names]."""

    numbers: jax.Array
    names: tuple[str, ...] = field(metadata={"static": True})


def take_steps(phases: Phases, state: State, count: int) -> tuple[State, Packed]:
    """`count` updates in one computation, with the metrics of all of them."""
    names: list[str] = []

    def step(state: State, _: None) -> tuple[State, jax.Array]:
        state, metrics = take_step(phases, state)
        names[:] = metrics
        return state, _row(metrics)

    state, numbers = jax.lax.scan(step, state, length=count)
    return state, Packed(numbers, tuple(names))


def _row(metrics: Metrics) -> jax.Array:
    """All metrics in the widest float dtype among them."""
    kinds = [jnp.result_type(value) for value in metrics.values()]
    widest = jnp.result_type(jnp.float32, *(kind for kind in kinds if jnp.issubdtype(kind, jnp.floating)))
    return jnp.stack([jnp.asarray(value, widest) for value in metrics.values()], axis=-1)


def make_evaluation(task: Task) -> Callable[[State], Metrics] | None:
    """The task's evaluation of a state, compiled; None if it has none."""
    if task.evaluate is None:
        return None
    evaluate = task.evaluate
    return jax.jit(lambda state: evaluate(state.params, jax.random.wrap_key_data(state.keys.evaluate)))


def _checked(result: Any, task: Task) -> tuple[jax.Array, Metrics]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise TaskError(f"loss should return (scalar, dict of metrics), but returned {type(result).__name__}")
    loss, metrics = result
    if taken := {*metrics} & {*_OWN_METRICS, *task.penalties}:
        raise TaskError(f"the metric {min(taken)!r} has a name that is taken; rename it")
    for name, value in {"the loss": loss, **metrics}.items():
        if jnp.shape(value) != ():
            raise TaskError(f"{name} should be a scalar, but has shape {jnp.shape(value)}; take its mean")
    return loss, metrics
