"""One step: data, prepare, forward, backward, update.

The same five functions make the fused step, which is compiled as one (`fused`), and the timed phases, which
are compiled apart (`_phases.py`), so that what is timed is what is run.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ._mask import Mask, join, split, where_trained
from ._state import State, key_at
from ._task import Batch, Metrics, Params, Task, TaskError

Gradient = Params
Pullback = Any  # What the forward pass leaves for the backward pass; a tree of arrays, as jax.vjp makes it.


class Parts(NamedTuple):
    """The phases of a step. `prepare` is None where the task has none."""

    data: Callable[[State], Batch]
    prepare: Callable[[State, Batch], Batch] | None
    forward: Callable[[State, Batch], tuple[jax.Array, Metrics, Pullback]]
    backward: Callable[[jax.Array, Pullback], Gradient]
    update: Callable[[State, jax.Array, Metrics, Gradient], tuple[State, Metrics]]


def make_parts(task: Task, mask: Mask) -> Parts:
    def data(state: State) -> Batch:
        return task.batch(key_at(state.step, state.keys.batch), state.step)

    def prepare(state: State, batch: Batch) -> Batch:
        assert task.prepare is not None
        return task.prepare(state.params, batch, key_at(state.step, state.keys.prepare))

    def forward(state: State, batch: Batch) -> tuple[jax.Array, Metrics, Pullback]:
        trained, fixed = split(state.params, mask)

        def loss_of(trained: Params) -> tuple[jax.Array, Metrics]:
            return _checked(task.loss(join(trained, fixed), batch))

        loss, pullback, metrics = jax.vjp(loss_of, trained, has_aux=True)
        return loss, metrics, pullback

    def backward(loss: jax.Array, pullback: Pullback) -> Gradient:
        (gradient,) = pullback(jnp.ones_like(loss))
        return where_trained(mask, gradient, jax.tree.map(jnp.zeros_like, gradient))

    def update(state: State, loss: jax.Array, metrics: Metrics, gradient: Gradient) -> tuple[State, Metrics]:
        rate, clip = state.controls
        norm = _norm(gradient)
        scale = jnp.where(norm > clip, clip / norm, 1.0)
        gradient = jax.tree.map(lambda g: g * scale.astype(g.dtype), gradient)
        trained, fixed = split(state.params, mask)
        direction, optimizer = task.optimizer.update(gradient, state.optimizer, trained)
        moved = jax.tree.map(lambda p, d: p - (rate * d).astype(p.dtype), trained, direction)
        params = join(where_trained(mask, moved, trained), fixed)
        told = {
            "loss": loss,
            **metrics,
            "gradient_norm": norm,
            "clipped_norm": norm * scale,
            "rate": rate,
        }
        return state._replace(step=state.step + 1, params=params, optimizer=optimizer), told

    return Parts(data, prepare if task.prepare else None, forward, backward, update)


def take_step(parts: Parts, state: State) -> tuple[State, Metrics]:
    """One update; the metrics are those of the parameters before it."""
    batch = parts.data(state)
    if parts.prepare:
        batch = parts.prepare(state, batch)
    loss, metrics, pullback = parts.forward(state, batch)
    gradient = parts.backward(loss, pullback)
    return parts.update(state, loss, metrics, gradient)


def take_steps(parts: Parts, state: State, count: int) -> tuple[State, Metrics]:
    """`count` updates in one computation; each metric becomes an array of `count` values."""
    return jax.lax.scan(lambda state, _: take_step(parts, state), state, length=count)


def make_evaluation(task: Task) -> Callable[[State], Metrics] | None:
    """The task's evaluation of a state, compiled; None if it has none."""
    if task.evaluate is None:
        return None
    evaluate = task.evaluate
    return jax.jit(lambda state: evaluate(state.params, jax.random.wrap_key_data(state.keys.evaluate)))


def _norm(tree: Gradient) -> jax.Array:
    squares = [jnp.sum(jnp.square(leaf.astype(jnp.float32))) for leaf in jax.tree.leaves(tree)]
    return jnp.sqrt(jnp.sum(jnp.stack(squares)))


def _checked(result: Any) -> tuple[jax.Array, Metrics]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise TaskError(f"loss should return (scalar, dict of metrics), but returned {type(result).__name__}")
    loss, metrics = result
    for name, value in {"the loss": loss, **metrics}.items():
        if jnp.shape(value) != ():
            raise TaskError(f"{name} should be a scalar, but has shape {jnp.shape(value)}; take its mean")
    return loss, metrics
