"""The loss of a step and its gradient: precision, the state of the model, accumulation over parts of a batch.

`forward` and `backward` are phases of their own so that they can be timed apart. With `accumulate`, the gradient of a
part is computed right after its loss, to use the memory of one part, so `forward` does both.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.task import Batch, Metrics, ModelState, Params, Task, TaskError
from lapwing.trees import structure

from ._config import ConfigError, FitConfig
from ._mask import Mask, join, split, where_trained
from ._optimizer import RATE, SCALE, effective
from ._state import State, key_at

Gradient = Params
Pullback = Any  # From the forward to the backward pass: a tree of arrays, as jax.vjp makes it.
_OWN_METRICS = ("loss", "gradient_norm", "clipped_norm", "step", "time", RATE, *map(effective, (RATE, SCALE)))


class Aux(NamedTuple):
    """What the loss returns beside its value: metrics, and the next state of the model, None if it has none.

    >>> Aux({"accuracy": 0.5}).metrics, Aux({}).model is None
    ({'accuracy': 0.5}, True)
    """

    metrics: Metrics
    model: ModelState = None


LossOf = Callable[[Params, Batch, ModelState, Any], tuple[jax.Array, Aux]]


def forward_and_backward(task: Task, mask: Mask, config: FitConfig, many: bool = False) -> tuple[Any, Any]:
    """The phases of the loss and its gradient; with `many`, of many runs along a leading axis, by `task.losses`."""
    over = jax.vmap if many else lambda function: function
    loss_of = _many_losses(task) if many and task.losses else full_loss(task, config)

    def of_trained(state: State, batch: Batch, model: ModelState, part: int | jax.Array = 0) -> Any:
        """The loss as a function of the trained parameters, with its penalties."""
        trained, fixed = split(state.params, mask)
        key = _loss_key(state, part)

        def function(trained: Params) -> tuple[jax.Array, Aux]:
            params = join(trained, fixed)
            loss, aux = loss_of(params, batch, model, key)
            terms = {name: over(penalty.of)(params) for name, penalty in task.penalties.items()}
            total = sum((state.penalties[name] * terms[name] for name in terms), start=loss)
            return total, aux._replace(metrics={**aux.metrics, **terms})

        return function, trained

    def forward(state: State, batch: Batch) -> tuple[jax.Array, Aux, Pullback]:
        loss, pullback, aux = jax.vjp(*of_trained(state, batch, state.model), has_aux=True)
        return loss, aux, pullback

    def accumulated(state: State, batch: Batch) -> tuple[jax.Array, Aux, Pullback]:
        def add(carry: Any, part: Any) -> Any:
            model, sums = carry
            number, batch = part
            function, trained = of_trained(state, batch, model, number)
            (loss, aux), gradient = jax.value_and_grad(function, has_aux=True)(trained)
            return (aux.model, jax.tree.map(jnp.add, sums, gradient)), (loss, aux.metrics)

        parts = config.accumulate
        numbered = jnp.arange(parts), parts_of(batch, task.batch_axis, parts)
        zeros = jax.tree.map(jnp.zeros_like, split(state.params, mask)[0])
        (model, gradient), rows = jax.lax.scan(add, (state.model, zeros), numbered)
        loss, metrics = jax.tree.map(lambda row: jnp.mean(row, axis=0), rows)
        return loss, Aux(metrics, model), jax.tree.map(lambda leaf: leaf / parts, gradient)

    def backward(loss: jax.Array, pullback: Pullback) -> Gradient:
        # The loss of a run depends on its own parameters only, so one pullback gives the gradient of each.
        gradient = pullback if config.accumulate > 1 else pullback(jnp.ones_like(loss))[0]
        return over(lambda g: where_trained(mask, g, jax.tree.map(jnp.zeros_like, g)))(gradient)

    return accumulated if config.accumulate > 1 else forward, backward


def full_loss(task: Task, config: FitConfig) -> LossOf:
    """The loss of a task as a function of everything: parameters, batch, state of the model and key.

    >>> task = Task(
    ...     init=lambda key: {"w": jnp.zeros(())}, data=lambda key, step: 1.0, loss=lambda p, x: ((p["w"] - x) ** 2, {})
    ... )
    >>> loss, aux = full_loss(task, FitConfig())({"w": jnp.ones(())}, jnp.float32(3.0), None, None)
    >>> float(loss), aux.metrics
    (4.0, {})
    """

    def loss_of(params: Params, batch: Batch, model: ModelState, key: Any) -> tuple[jax.Array, Aux]:
        if config.precision == "bfloat16":
            params, batch = _in_bfloat16(params), _in_bfloat16(batch)
        more = ((model,) if task.has_state else ()) + ((key,) if task.has_key else ())
        loss, metrics, *after = _checked(task.loss(params, batch, *more), task)
        if after:
            if jax.tree.structure(after[0]) != jax.tree.structure(model):
                structure(model_state=model, model_state_after_the_step=after[0])
            model = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after[0], model)
        return loss.astype(jnp.promote_types(loss.dtype, jnp.float32)), Aux(metrics, model)

    return loss_of


def loss_alone(task: Task, config: FitConfig) -> Callable[[State, Batch], jax.Array]:
    """The loss of a step with its penalties, on the whole batch and without a gradient."""
    loss_of = full_loss(task, config)

    def of_state(state: State, batch: Batch) -> jax.Array:
        loss, _ = loss_of(state.params, batch, state.model, _loss_key(state, 0))
        terms = (state.penalties[name] * each.of(state.params) for name, each in task.penalties.items())
        return sum(terms, start=loss)

    return of_state


def parts_of(batch: Batch, batch_axis: Any, parts: int) -> Batch:
    """A batch cut into equal parts along a new leading axis; what has no batch axis is in every part.

    >>> parts_of({"x": jnp.arange(4), "scale": jnp.float32(2)}, {"x": 0, "scale": None}, parts=2)["x"].tolist()
    [[0, 1], [2, 3]]
    """
    axes = jax.tree.broadcast(batch_axis, batch, is_leaf=lambda axis: axis is None)

    def cut(path: Any, leaf: jax.Array, axis: int | None) -> jax.Array:
        if axis is None:
            return jnp.broadcast_to(leaf, (parts, *leaf.shape))
        axis %= leaf.ndim
        size = leaf.shape[axis]
        if size % parts:
            raise ConfigError(
                f"accumulate should divide the batch of {size} (batch{jax.tree_util.keystr(path)}, axis {axis}), but "
                f"is {parts}"
            )
        shape = (*leaf.shape[:axis], parts, size // parts, *leaf.shape[axis + 1 :])
        return jnp.moveaxis(jnp.reshape(leaf, shape), axis, 0)

    leaves, structure = jax.tree_util.tree_flatten_with_path(batch)
    flat = jax.tree.leaves(axes, is_leaf=lambda axis: axis is None)
    return jax.tree.unflatten(structure, [cut(*pair, axis) for pair, axis in zip(leaves, flat, strict=True)])


def _loss_key(state: State, part: int | jax.Array) -> Any:
    if state.keys.loss is None:
        return None
    key = key_at(state.step, state.keys.loss)
    return key if isinstance(part, int) else jax.random.fold_in(key, part)


def _many_losses(task: Task) -> LossOf:
    assert task.losses is not None
    losses = task.losses

    def loss_of(params: Params, batch: Batch, model: ModelState, key: Any) -> tuple[jax.Array, Aux]:
        loss, metrics = losses(params, batch)
        return loss, Aux(metrics)

    return loss_of


def _in_bfloat16(tree: Any) -> Any:
    def cast(leaf: Any) -> Any:
        return leaf.astype(jnp.bfloat16) if jnp.result_type(leaf) == np.float32 else leaf

    return jax.tree.map(cast, tree)


def _checked(result: Any, task: Task) -> Any:
    expected = "scalar, dict of metrics, state" if task.has_state else "scalar, dict of metrics"
    if not isinstance(result, tuple) or len(result) != expected.count(",") + 1:
        found = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
        raise TaskError(f"loss should return ({expected}), but returned {found}")
    loss, metrics = result[:2]
    if taken := {*metrics} & {*_OWN_METRICS, *task.penalties}:
        raise TaskError(f"the metric {min(taken)!r} has a name that is taken; rename it")
    for name, value in {"the loss": loss, **metrics}.items():
        if jnp.shape(value) != ():
            raise TaskError(f"{name} should be a scalar, but has shape {jnp.shape(value)}; take its mean")
    return (jnp.asarray(loss), *result[1:])
