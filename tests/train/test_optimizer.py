"""The chain around the task's optimizer: the same as optax's own, settable, and skipped where it is not finite."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing.train import FitConfig, Schedule, fit, initial_state, make_phases, take_step
from lapwing.train._optimizer import task_state, with_task_state

from .tasks import line, same_bits

OPTIONS = {"learning_rate": 0.1, "laps_every": 0, "log_every": 5}


def test_it_is_adamw_after_clipping():
    task, steps = line(), 12
    config = FitConfig(**OPTIONS, steps=steps, clip=0.5, weight_decay=0.3)
    state, _ = initial_state(task, config)
    params = state.params
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(0.1, weight_decay=0.3))
    inner = optimizer.init(params)

    @jax.jit
    def update(params, inner, step):
        key = jax.random.fold_in(jax.random.wrap_key_data(state.keys.batch), step)
        gradient = jax.grad(lambda p, x: task.loss(p, x)[0])(params, task.data(key, step))
        updates, inner = optimizer.update(gradient, inner, params)
        return optax.apply_updates(params, updates), inner

    for step in range(steps):
        params, inner = update(params, inner, step)
    result = fit(task, config, quiet=True)
    for name in params:
        np.testing.assert_allclose(result.params[name], params[name], rtol=1e-5)


RESTARTS = {"init_value": 0.0, "peak_value": 1.0, "decay_steps": 6, "warmup_steps": 2}


@pytest.mark.parametrize("schedule", [optax.exponential_decay(1.0, 5, 0.5), optax.sgdr_schedule([RESTARTS])])
def test_a_task_may_bring_any_optax_schedule(schedule):
    config = FitConfig(**OPTIONS, steps=10, schedule=Schedule(warmup=4))
    rates = fit(line(schedule=schedule), config, quiet=True).metrics["learning_rate"]
    warmup = np.minimum(1.0, (np.arange(10) + 1) / 4)
    np.testing.assert_allclose(rates, [0.1 * w * float(schedule(s)) for s, w in enumerate(warmup)], rtol=1e-5)


def broken_at(steps: set[int]):
    """The loss is not finite at these steps; one parameter is -0.0, which adding 0.0 would change."""

    def data(key, step):
        bad = jnp.isin(step, jnp.array(sorted(steps)))
        return jnp.where(bad, jnp.nan, jax.random.normal(key, (8, 3)))

    return line(data=data, init=lambda key: {"w": jnp.array([-0.0, 1.0, 2.0]), "b": jnp.float32(0.5)})


def test_a_step_that_is_not_finite_changes_nothing_but_the_step():
    task, config = broken_at({0}), FitConfig(**OPTIONS, weight_decay=0.5, schedule=Schedule(warmup=4))
    state, mask = initial_state(task, config)
    after, metrics = jax.jit(lambda state: take_step(make_phases(task, mask, config), state))(state)
    assert bool(metrics["skipped"])
    assert same_bits(after.params, state.params)
    assert same_bits(task_state(after.optimizer), task_state(state.optimizer))
    assert int(after.step) == 1
    # The schedule continues with the step, as if the update had been made.
    _, later = take_step(make_phases(task, mask, config), after)
    np.testing.assert_allclose([metrics["learning_rate"], later["learning_rate"]], [0.025, 0.05], rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_parameters_of_less_precision_keep_their_dtype_and_are_clipped_by_a_norm_in_float32(dtype):
    """The square of this gradient overflows in float16."""
    task = line(
        init=lambda key: {"w": jnp.zeros(3, dtype), "b": jnp.float32(0)},
        loss=lambda params, batch: (1000.0 * jnp.sum(params["w"].astype(jnp.float32)) + params["b"] ** 2, {}),
        optimizer=optax.identity(),
    )
    result = fit(task, FitConfig(steps=1, learning_rate=1.0, clip=3.0, laps_every=0), quiet=True)
    assert result.params["w"].dtype == dtype
    np.testing.assert_allclose(result.metrics["gradient_norm"], [1000 * 3**0.5], rtol=1e-3)
    np.testing.assert_allclose(result.params["w"].astype(jnp.float32), -(3**0.5), rtol=1e-2)


def test_the_state_of_the_tasks_optimizer_can_be_replaced():
    state, _ = initial_state(line(), FitConfig())
    zeros = jax.tree.map(lambda leaf: leaf + 1, task_state(state.optimizer))
    replaced = with_task_state(state.optimizer, zeros)
    assert same_bits(task_state(replaced), zeros)
    assert jax.tree.structure(replaced) == jax.tree.structure(state.optimizer)
