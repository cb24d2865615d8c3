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


def make_optimizer(task: Task, config: FitConfig) -> optax.GradientTransformationExtraArgs:
    """The task's optimizer with clipping before it, and weight decay, learning rate and schedule after it.

    Its `update` takes one more argument, `finite`: where it is False, the update is zero and the state stays the same.
    """

    def chain(
        learning_rate: jax.Array, clip: jax.Array, weight_decay: jax.Array, schedule: jax.Array
    ) -> optax.GradientTransformation:
        return _only_if_finite(
            optax.named_chain(
                ("wide", optax.stateless(lambda gradient, _: in_float32(gradient))),
                ("clip", optax.clip_by_global_norm(clip)),
                ("narrow", optax.stateless(_like)),
                ("task", _with_fixed_structure(task.optimizer)),
                ("weight_decay", optax.add_decayed_weights(weight_decay)),
                ("learning_rate", optax.scale_by_learning_rate(learning_rate * schedule)),
            )
        )

    schedule = make_schedule(config)
    if task.schedule is not None:
        schedule = _product(schedule, task.schedule)
    inject = optax.inject_hyperparams(chain, hyperparam_dtype=jnp.float32)
    return inject(config.learning_rate, config.clip, config.weight_decay, schedule)


def current_learning_rate(optimizer: Any) -> jax.Array:
    """The learning rate of the last update, from the state after it."""
    return optimizer.hyperparams["learning_rate"] * optimizer.hyperparams["schedule"]


def task_state(optimizer: Any) -> optax.OptState:
    """The state of the task's own optimizer."""
    return optimizer.inner_state["task"]


def with_task_state(optimizer: Any, state: optax.OptState) -> Any:
    return optimizer._replace(inner_state=optimizer.inner_state | {"task": state})


def in_float32(tree: Any) -> Any:
    """Numbers of less precision in float32, so that the sum of their squares neither rounds nor overflows."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), tree)


def make_schedule(config: FitConfig) -> optax.Schedule:
    """The factor of the learning rate at each step. A plateau is cut by the host, in the learning rate itself.

    >>> from ._config import Schedule
    >>> schedule = make_schedule(FitConfig(steps=101, schedule=Schedule("cosine", warmup=10)))
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
    return _product(main, optax.linear_schedule(1 / warmup, 1.0, warmup - 1)) if warmup > 1 else main


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


def _like(updates: Params, params: Params) -> Params:
    return jax.tree.map(lambda update, param: update.astype(param.dtype), updates, params)


def _with_fixed_structure(
    optimizer: optax.GradientTransformation,
) -> optax.GradientTransformationExtraArgs:
    """No leaf may appear or vanish: it would be another network, or optimizer state that leaks into it. Checked while
    the step is traced, so it costs nothing afterwards."""
    optimizer = optax.with_extra_args_support(optimizer)

    def update(gradient: Params, state: Any, params: Params = None, **extra: Any) -> tuple[Params, Any]:
        direction, after = optimizer.update(gradient, state, params, **extra)
        structure(trained_parameters=_shapes(params), their_update=_shapes(direction))
        structure(optimizer_state=state, optimizer_state_after_the_update=after)
        return direction, after

    return optax.GradientTransformationExtraArgs(optimizer.init, update)


def _only_if_finite(inner: optax.GradientTransformationExtraArgs) -> optax.GradientTransformationExtraArgs:
    def update(
        gradient: Params, state: Any, params: Params = None, *, finite: jax.Array, **extra: Any
    ) -> tuple[Params, Any]:
        updates, after = inner.update(gradient, state, params, **extra)
        # Adding -0.0 keeps every number bit by bit, which adding 0.0 does not do for -0.0.
        updates = jax.tree.map(lambda update: jnp.where(finite, update, -0.0), updates)
        return updates, jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, state)

    return optax.GradientTransformationExtraArgs(inner.init, update)


def _shapes(tree: Any) -> Any:
    """Without dtypes: an update may have another one than its parameter."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.float32), tree)
