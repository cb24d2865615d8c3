"""The optimizer of a run: the task's own, with clipping before it, and weight decay and the schedule after it.

A task gives an optimizer that is complete, or a function of the learning rate. With a function, the learning rate is
an array in the state, which the function is called with whenever the step is traced; so are the clip and the weight
decay. Changing one during a run does not recompile. The updates of an optimizer that is complete are multiplied by
`update_scale` instead, which a rollback cuts and `lapwing set` changes.

A step whose loss or gradient is not finite changes nothing but the number of steps: `optax.apply_if_finite` would not
look at the loss, and branches, which costs a GPU a round trip to the host; here the old values are selected.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lapwing.task import Params, Task, TaskError
from lapwing.trees import structure

from ._config import ConfigError, FitConfig, default_of
from ._hyperparams import hyperparams_by_name

RATE, SCALE = "learning_rate", "update_scale"
OWN = (RATE, SCALE, "clip", "weight_decay")
"""The hyperparameters that Lapwing adds; a run has one of the first two, or finds it in the task's optimizer."""


class OptimizerState(NamedTuple):
    """`hyperparams` are those that Lapwing adds, by name; `task` is the state of the task's optimizer."""

    hyperparams: dict[str, jax.Array]
    task: optax.OptState


class Optimizer(NamedTuple):
    """`init(params)` returns the state; `update(gradient, state, params, finite=, factor=, ...)` the new parameters and
    state. `factor` is that of the schedule. Where `finite` is False, nothing changes. What else it is given, such as
    `value`, goes to the task's optimizer."""

    init: Callable[[Params], OptimizerState]
    update: Callable[..., tuple[Params, OptimizerState]]


def make_optimizer(task: Task, config: FitConfig) -> Optimizer:
    """The optimizer of a run."""
    make = _maker(task.optimizer)

    def init(params: Params) -> OptimizerState:
        state = make(config.learning_rate).init(params)
        own = _own_hyperparams(_is_complete(task.optimizer), config, hyperparams_by_name(state))
        return OptimizerState({name: jnp.float32(value) for name, value in own.items()}, state)

    def update(
        gradient: Params, state: OptimizerState, params: Params, *, finite: Any, factor: Any, **extra: Any
    ) -> tuple[Params, OptimizerState]:
        own = state.hyperparams
        optimizer = make(own.get(RATE, config.learning_rate))
        updates, after = optimizer.update(_clipped(gradient, own["clip"]), state.task, params, **extra)
        scale = factor * own[SCALE] if SCALE in own else factor
        # Adding -0.0 keeps every number bit by bit, which adding 0.0 does not do for -0.0.
        updates = jax.tree.map(lambda update: jnp.where(finite, scale * update, -0.0), updates)
        kept = params
        if "weight_decay" in own:
            rate = own[RATE] if RATE in own else hyperparams_by_name(state.task)[RATE][1]
            decay = jnp.where(finite & (own["weight_decay"] > 0), factor * rate * own["weight_decay"], -0.0)
            # Of the parameters, as in AdamW; not among the updates, which would then be rounded once more.
            kept = jax.tree.map(lambda param: param - decay * param, params)
        after = jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, state.task)
        moved = jax.tree.map(lambda param, part, up: (part + up).astype(param.dtype), params, kept, updates)
        return moved, state._replace(task=after)

    return Optimizer(init, update)


def effective(name: str) -> str:
    """The metric with the value of a control times the factor of the schedule: what a step is made with.

    >>> effective(RATE)
    'effective_learning_rate'
    """
    return f"effective_{name}"


def _own_hyperparams(is_complete: bool, config: FitConfig, injected: Any) -> dict[str, float]:
    """What Lapwing adds to the hyperparameters that the task's optimizer injects itself."""
    rates = [name for name, (path, _) in injected.items() if path[-1].key == RATE]
    own = {} if rates == [RATE] else {SCALE: 1.0} if is_complete or rates else {RATE: config.learning_rate}
    own["clip"] = config.clip
    if is_complete and config.learning_rate != default_of(config, RATE):
        raise ConfigError(
            f"learning_rate is {config.learning_rate:g}, but the task's optimizer has its own learning rate; to use "
            "that of the config, give the task a function of it, such as optimizer=optax.adam, or "
            "optimizer=lambda learning_rate: optax.chain(...)"
        )
    if not is_complete and SCALE not in own and "weight_decay" not in injected:
        own["weight_decay"] = config.weight_decay
    elif config.weight_decay:
        raise ConfigError(
            f"weight_decay is {config.weight_decay:g}, but the task's optimizer has its own learning rate or weight "
            "decay; give the decay to the optimizer, or give the task a function of the learning rate, such as "
            "optimizer=optax.adam"
        )
    return own


def _is_complete(optimizer: Any) -> bool:
    return isinstance(optimizer, optax.GradientTransformation | optax.MultiSteps)


def _maker(optimizer: Any) -> Callable[[Any], optax.GradientTransformationExtraArgs]:
    """The task's optimizer for a learning rate."""
    if not _is_complete(optimizer) and not callable(optimizer):
        raise TaskError(
            "optimizer should be an optax optimizer, such as optax.adam(1e-3), or a function of the learning rate, "
            f"such as optax.adam, but is a {type(optimizer).__name__}"
        )

    def make(learning_rate: Any) -> optax.GradientTransformationExtraArgs:
        made: Any = optimizer if _is_complete(optimizer) else optimizer(learning_rate)
        if not _is_complete(made):
            raise TaskError(
                "optimizer, a function of the learning rate, should return an optax optimizer, but returned a "
                f"{type(made).__name__}"
            )
        return _with_fixed_structure(
            made.gradient_transformation() if isinstance(made, optax.MultiSteps) else made
        )

    return make


def in_float32(tree: Any) -> Any:
    """Numbers of less precision in float32, so that the sum of their squares neither rounds nor overflows."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), tree)


def make_schedule(task: Task | None, config: FitConfig) -> optax.Schedule:
    """The factor of the learning rate at each step: that of the config times that of the task. A plateau is cut by the
    host, in the learning rate itself.

    >>> from lapwing.train import Schedule
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
        direction, after = _update(optimizer, updates, state, params, **extra)
        structure(trained_parameters=_shapes(params), their_update=_shapes(direction))
        structure(optimizer_state=state, optimizer_state_after_the_update=after)
        return direction, after

    return optax.GradientTransformationExtraArgs(optimizer.init, update)


def _update(optimizer: optax.GradientTransformationExtraArgs, *arguments: Any, **extra: Any) -> Any:
    try:
        return optimizer.update(*arguments, **extra)
    except TypeError as error:
        if extra and "unexpected keyword argument" in str(error):  # That of one which takes none of them.
            return _update(optimizer, *arguments)
        if "value_fn" not in str(error):
            raise
        raise TaskError(
            "the optimizer searches along a line, which needs the loss as a function (value_fn), and a step gives it "
            "the loss of one batch only; use it without a line search, as in optax.lbfgs(0.1, linesearch=None)"
        ) from error


def _shapes(tree: Any) -> Any:
    """Without dtypes: an update may have another one than its parameter."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.float32), tree)
