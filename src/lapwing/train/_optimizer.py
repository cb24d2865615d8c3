"""The optimizer of a run: an optax chain around the task's own optimizer.

`inject_hyperparams` keeps the learning rate, the clip and the weight decay as arrays in the optimizer's state, so
changing one during a run does not recompile. A step whose loss or gradient is not finite changes nothing but the
number of steps: `optax.apply_if_finite` would not look at the loss, and branches, which costs a GPU a round trip to
the host; here the old values are selected.
"""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lapwing.task import Params, Task
from lapwing.trees import structure

from ._config import FitConfig

TASK = 1  # The place of the task's own optimizer in the chain.


def make_optimizer(task: Task, config: FitConfig) -> optax.GradientTransformationExtraArgs:
    """The task's optimizer with clipping before it, and weight decay and learning rate after it.

    Its `update` takes two more arguments: `factor`, that of the schedule, and `finite`: where it is False, the update
    is zero and the state stays the same.
    """

    def chain(
        learning_rate: jax.Array, clip: jax.Array, weight_decay: jax.Array
    ) -> optax.GradientTransformation:
        return _scaled_if_finite(
            optax.chain(
                optax.stateless(lambda gradient, _: _clipped(gradient, clip)),
                _with_fixed_structure(task.optimizer),  # At TASK.
                optax.add_decayed_weights(weight_decay),
                optax.scale_by_learning_rate(learning_rate),
            )
        )

    inject = optax.inject_hyperparams(chain, hyperparam_dtype=jnp.float32)
    return inject(config.learning_rate, config.clip, config.weight_decay)


def task_state(optimizer: Any) -> optax.OptState:
    """The state of the task's own optimizer."""
    return optimizer.inner_state[TASK]


def with_task_state(optimizer: Any, state: optax.OptState) -> Any:
    before, after = optimizer.inner_state[:TASK], optimizer.inner_state[TASK + 1 :]
    return optimizer._replace(inner_state=(*before, state, *after))


def in_float32(tree: Any) -> Any:
    """Numbers of less precision in float32, so that the sum of their squares neither rounds nor overflows."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), tree)


def make_schedule(task: Task | None, config: FitConfig) -> optax.Schedule:
    """The factor of the learning rate at each step: that of the config times that of the task. A plateau is cut by the
    host, in the learning rate itself.

    >>> from ._config import Schedule
    >>> schedule = make_schedule(None, FitConfig(steps=101, schedule=Schedule("cosine", warmup=10)))
    >>> [round(float(schedule(step)), 3) for step in (0, 4, 55, 100)]
    [0.1, 0.5, 0.5, 0.0]
    """
    plan, warmup = config.schedule, config.schedule.warmup
    main = optax.constant_schedule(1.0)
    if plan.kind == "cosine":
        decay = optax.cosine_decay_schedule(1.0, max(config.steps - 1 - warmup, 1), plan.floor)
        main = optax.join_schedules([main, decay], [warmup])
    if plan.kind == "points":
        main = _through(plan.points)
    if warmup > 1:
        main = _product(main, optax.linear_schedule(1 / warmup, 1.0, warmup - 1))
    return main if task is None or task.schedule is None else _product(main, task.schedule)


def _through(points: tuple[tuple[int, float], ...]) -> optax.Schedule:
    """Straight lines between points, and constant before the first and after the last."""
    lines = [
        optax.linear_schedule(factor, next_factor, next_step - step)
        for (step, factor), (next_step, next_factor) in itertools.pairwise(points)
    ]
    return optax.join_schedules(
        [optax.constant_schedule(points[0][1]), *lines], [step for step, _ in points[:-1]]
    )


def _product(a: optax.Schedule, b: optax.Schedule) -> optax.Schedule:
    return lambda step: jnp.asarray(a(step), jnp.float32) * b(step)


def _clipped(gradient: Params, norm: jax.Array) -> Params:
    clipped, _ = optax.clip_by_global_norm(norm).update(in_float32(gradient), optax.EmptyState())
    return jax.tree.map(lambda new, old: new.astype(old.dtype), clipped, gradient)


def _with_fixed_structure(
    optimizer: optax.GradientTransformation,
) -> optax.GradientTransformationExtraArgs:
    """No leaf may appear or vanish: it would be another network, or optimizer state that leaks into it. Checked while
    the step is traced, so it costs nothing afterwards."""
    optimizer = optax.with_extra_args_support(optimizer)

    def update(updates: Params, state: Any, params: Params = None, **extra: Any) -> tuple[Params, Any]:
        direction, after = optimizer.update(updates, state, params, **extra)
        structure(trained_parameters=_shapes(params), their_update=_shapes(direction))
        structure(optimizer_state=state, optimizer_state_after_the_update=after)
        return direction, after

    return optax.GradientTransformationExtraArgs(optimizer.init, update)


def _scaled_if_finite(inner: optax.GradientTransformationExtraArgs) -> optax.GradientTransformationExtraArgs:
    def update(updates: Params, state: Any, params: Params = None, **extra: Any) -> tuple[Params, Any]:
        finite, factor = extra.pop("finite"), extra.pop("factor")
        updates, after = inner.update(updates, state, params, **extra)
        # Adding -0.0 keeps every number bit by bit, which adding 0.0 does not do for -0.0.
        updates = jax.tree.map(lambda update: jnp.where(finite, factor * update, -0.0), updates)
        return updates, jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, state)

    return optax.GradientTransformationExtraArgs(inner.init, update)


def _shapes(tree: Any) -> Any:
    """Without dtypes: an update may have another one than its parameter."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.float32), tree)
