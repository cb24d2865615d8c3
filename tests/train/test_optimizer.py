"""The chain around the task's optimizer: the same as optax's own, settable, and skipped where it is not finite."""

import dataclasses
import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing.journal import Run
from lapwing.task import Penalty, TaskError
from lapwing.train import ConfigError, FitConfig, Schedule, fit, initial_state, make_phases, take_step
from tests.slow import some

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


@pytest.mark.parametrize(
    "schedule", some([optax.exponential_decay(1.0, 5, 0.5), optax.sgdr_schedule([RESTARTS])], 1)
)
def test_a_task_may_bring_any_optax_schedule(schedule):
    config = FitConfig(**OPTIONS, steps=10, schedule=Schedule(warmup=4))
    rates = fit(line(schedule=schedule), config, quiet=True).metrics["effective_learning_rate"]
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
    assert same_bits(after.optimizer.task, state.optimizer.task)
    assert int(after.step) == 1
    # The schedule continues with the step, as if the update had been made.
    _, later = take_step(make_phases(task, mask, config), after)
    np.testing.assert_allclose(
        [metrics["effective_learning_rate"], later["effective_learning_rate"]], [0.025, 0.05], rtol=1e-6
    )


@pytest.mark.parametrize("dtype", [jnp.bfloat16, pytest.param(jnp.float16, marks=pytest.mark.slow)])
def test_parameters_of_less_precision_keep_their_dtype_and_are_clipped_by_a_norm_in_float32(dtype):
    """The square of this gradient overflows in float16."""
    task = line(
        init=lambda key: {"w": jnp.zeros(3, dtype), "b": jnp.float32(0)},
        loss=lambda params, batch: (1000.0 * jnp.sum(params["w"].astype(jnp.float32)) + params["b"] ** 2, {}),
        optimizer=optax.sgd,
    )
    result = fit(task, FitConfig(steps=1, learning_rate=1.0, clip=3.0, laps_every=0), quiet=True)
    assert result.params["w"].dtype == dtype
    np.testing.assert_allclose(result.metrics["gradient_norm"], [1000 * 3**0.5], rtol=1e-3)
    np.testing.assert_allclose(result.params["w"].astype(jnp.float32), -(3**0.5), rtol=1e-2)


# What a task may give.


def controls_of(optimizer, **changes) -> dict[str, float]:
    state, _ = initial_state(line(optimizer=optimizer, **changes), FitConfig(clip=5.0))
    return {name: float(value) for name, value in state.controls.items()}


def trained(optimizer, config=None, **changes):
    return fit(line(optimizer=optimizer, **changes), config or FitConfig(steps=30, laps_every=0), quiet=True)


@pytest.mark.parametrize(
    "optimizer",
    some(
        [
            optax.adam(1e-2),
            optax.sgd(optax.cosine_decay_schedule(1e-1, 20), momentum=0.9),
            optax.chain(optax.clip(1.0), optax.rmsprop(1e-2)),
            optax.inject_hyperparams(optax.adam)(1e-2),
            optax.MultiSteps(optax.adam(1e-2), 3),
            optax.contrib.prodigy(1.0),
            optax.polyak_sgd(),
            optax.chain(optax.sgd(1e-2), optax.contrib.reduce_on_plateau(patience=2)),
            optax.lion(1e-2, weight_decay=0.1),
            optax.lbfgs(0.1, linesearch=None),
        ],
        0,
        4,
        8,
    ),
    ids=range(10),
)
def test_an_optimizer_that_is_complete_is_used_as_it_is(optimizer):
    """The same bits as in a loop without Lapwing."""
    config = FitConfig(steps=12, laps_every=0)
    task = line(optimizer=optimizer)
    state, _ = initial_state(task, config)
    params, inner = state.params, optax.with_extra_args_support(optimizer).init(state.params)

    @jax.jit
    def update(params, inner, step):
        key = jax.random.fold_in(jax.random.wrap_key_data(state.keys.batch), step)
        value, gradient = jax.value_and_grad(lambda p, x: task.loss(p, x)[0])(params, task.data(key, step))
        updates, inner = optax.with_extra_args_support(optimizer).update(
            gradient, inner, params, value=value, grad=gradient
        )
        return optax.apply_updates(params, updates), inner

    for step in range(12):
        params, inner = update(params, inner, step)
    result = fit(task, config, quiet=True)
    for name in params:
        np.testing.assert_allclose(result.params[name], params[name], rtol=1e-6)


def test_a_line_search_is_refused_with_the_way_out():
    with pytest.raises(
        TaskError, match=r"use it without a line search, as in optax\.lbfgs\(0\.1, linesearch=None\)"
    ):
        trained(optax.lbfgs())


@pytest.mark.parametrize(
    ("optimizer", "controls"),
    [
        (optax.adam, {"learning_rate": 1e-3, "clip": 5.0, "weight_decay": 0.0}),
        (
            lambda rate: optax.chain(optax.scale_by_adam(), optax.scale(-rate)),
            {"learning_rate": 1e-3, "clip": 5.0, "weight_decay": 0.0},
        ),
        (optax.adam(1e-2), {"update_scale": 1.0, "clip": 5.0}),
        (
            optax.inject_hyperparams(optax.sgd)(0.5, momentum=0.9),
            {"clip": 5.0, "learning_rate": 0.5, "momentum": 0.9},
        ),
        (
            optax.inject_hyperparams(optax.sgd),
            {"clip": 5.0, "weight_decay": 0.0, "learning_rate": 1e-3},
        ),
        (
            lambda rate: optax.chain(optax.inject_hyperparams(optax.ema)(0.5), optax.sgd(rate)),
            {"learning_rate": 1e-3, "clip": 5.0, "weight_decay": 0.0, "decay": 0.5},
        ),
        (
            optax.chain(*[optax.inject_hyperparams(optax.sgd)(rate) for rate in (0.1, 0.2)]),
            {"update_scale": 1.0, "clip": 5.0, "learning_rate": 0.1, "learning_rate_2": 0.2},
        ),
        (
            optax.inject_hyperparams(optax.sgd)(optax.constant_schedule(0.5), momentum=0.9),
            {"update_scale": 1.0, "clip": 5.0, "momentum": 0.9},
        ),
        (
            lambda rate: optax.multi_transform(
                {
                    "slow": optax.inject_hyperparams(optax.sgd)(rate),
                    "fast": optax.inject_hyperparams(optax.sgd)(10 * rate),
                },
                {"w": "slow", "b": "fast"},
            ),
            {"update_scale": 1.0, "clip": 5.0, "fast.learning_rate": 1e-2, "slow.learning_rate": 1e-3},
        ),
    ],
    ids=["function", "chain", "complete", "injected", "injecting", "inner", "twice", "scheduled", "groups"],
)
def test_what_can_be_set(optimizer, controls):
    found = controls_of(optimizer)
    assert found == pytest.approx(controls)


def test_a_penalty_and_a_hyperparameter_of_one_name():
    l1 = {"momentum": Penalty(0.25, lambda params: jnp.sum(params["w"]))}
    found = controls_of(optax.inject_hyperparams(optax.sgd)(0.5, momentum=0.9), penalties=l1)
    assert found == pytest.approx({"clip": 5.0, "momentum": 0.25, "learning_rate": 0.5, "momentum_2": 0.9})


def test_a_hyperparameter_that_is_set_has_an_effect_and_nothing_else_changes():
    task = line(
        optimizer=lambda rate: optax.chain(optax.inject_hyperparams(optax.scale)(2.0), optax.sgd(rate))
    )
    config = FitConfig(laps_every=0)
    state, mask = initial_state(task, config)
    step = jax.jit(lambda state: take_step(make_phases(task, mask, config), state))
    one, _ = step(state)
    two, _ = step(state.with_controls({"step_size": jnp.float32(4.0)}))
    moved, twice = (np.asarray(after.params["w"] - state.params["w"]) for after in (one, two))
    np.testing.assert_allclose(2 * moved, twice, rtol=1e-6)
    assert jax.tree.structure(one) == jax.tree.structure(two)
    assert same_bits(state.with_controls(state.controls), state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"learning_rate": 0.1},
            r"^learning_rate is 0\.1, but the task's optimizer has its own .* optimizer=optax\.adam, or",
        ),
        (
            {"weight_decay": 0.1},
            r"^weight_decay is 0\.1, but the task's optimizer has its own learning rate or weight",
        ),
    ],
)
def test_options_that_an_optimizer_which_is_complete_would_ignore_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        trained(optax.adam(1e-2), FitConfig(steps=3, **options))


def test_a_decay_in_two_places_is_refused():
    with pytest.raises(ConfigError, match=r"^weight_decay is 0\.1, but"):
        trained(optax.inject_hyperparams(optax.adamw), FitConfig(steps=3, weight_decay=0.1))


def test_the_default_learning_rate_of_a_subclass_is_not_a_choice():
    @dataclass(frozen=True)
    class Config(FitConfig):
        learning_rate: float = 0.3

    assert trained(optax.adam(1e-2), Config(steps=3, laps_every=0)).ended == "finished"


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (
            "adam",
            r"^optimizer should be an optax optimizer, such as optax\.adam\(1e-3\), or a function .* but is a str",
        ),
        (
            lambda rate: rate,
            r"^optimizer, a function of the learning rate, should return an optax optimizer, but ret",
        ),
    ],
)
def test_what_is_no_optimizer_is_refused(optimizer, message):
    with pytest.raises(TaskError, match=message):
        trained(optimizer)


@pytest.mark.parametrize(
    "optimizer", some([optax.adam, optax.inject_hyperparams(optax.adam)], 0), ids=["ours", "theirs"]
)
def test_weight_decay_is_that_of_adamw_whoever_injects_the_learning_rate(optimizer):
    config = FitConfig(steps=10, learning_rate=0.1, weight_decay=0.3, laps_every=0)
    ours = trained(optimizer, config)
    adamw = trained(
        functools.partial(optax.adamw, weight_decay=0.3), dataclasses.replace(config, weight_decay=0.0)
    )
    np.testing.assert_allclose(ours.params["w"], adamw.params["w"], rtol=1e-5)


# Groups, rollback, schedule.


@pytest.mark.parametrize("labels", ["tree", "function", "by path"])
@pytest.mark.parametrize("is_fixed", some([False, True], 1))
def test_groups_have_their_own_learning_rates_also_with_a_mask(labels, is_fixed):
    tree = {"w": "slow", "b": "fast", "fixed": "slow"}
    given = {
        "tree": tree,
        "function": lambda params: {name: tree[name] for name in params},
        "by path": functools.partial(jax.tree_util.tree_map_with_path, lambda path, _: tree[path[0].key]),
    }[labels]

    def optimizer(learning_rate):
        return optax.multi_transform(
            {"slow": optax.sgd(learning_rate), "fast": optax.sgd(10 * learning_rate)}, given
        )

    task = line(
        init=lambda key: {"w": jnp.zeros(3), "b": jnp.float32(0), "fixed": jnp.ones(2)},
        loss=lambda params, batch: (jnp.sum(params["w"]) + params["b"] + jnp.sum(params["fixed"]), {}),
        trainable=(lambda params: {"w": True, "b": True, "fixed": False}) if is_fixed else None,
        optimizer=optimizer,
    )
    result = fit(task, FitConfig(steps=1, learning_rate=0.5, laps_every=0), quiet=True)
    np.testing.assert_allclose(result.params["w"], -0.5)
    np.testing.assert_allclose(result.params["b"], -5.0)
    np.testing.assert_allclose(result.params["fixed"], 1.0 if is_fixed else 0.5)


def test_a_plateau_and_a_schedule_scale_the_updates_of_an_optimizer_that_is_complete():
    flat = line(loss=lambda params, batch: (1.0 + 0.0 * params["b"], {}), optimizer=optax.sgd(1.0))
    schedule = Schedule("plateau", patience=20, warmup=4)
    result = fit(flat, FitConfig(steps=60, laps_every=0, log_every=10, schedule=schedule), quiet=True)
    scales = result.metrics["effective_update_scale"]
    np.testing.assert_allclose(scales, [0.25, 0.5, 0.75] + [1.0] * 27 + [0.5] * 20 + [0.25] * 10, rtol=1e-6)


def broken_once_at(step: int):
    """The loss is not finite with the data of the first attempt."""
    first = initial_state(line(), FitConfig())[0].keys.batch

    def data(key, now):
        expected = jax.random.fold_in(jax.random.wrap_key_data(first), now)
        is_first = jnp.all(jax.random.key_data(key) == jax.random.key_data(expected))
        return jnp.where((now == step) & is_first, jnp.nan, jax.random.normal(key, (8, 3)))

    return line(data=data)


def test_a_rollback_cuts_the_scale_and_the_scale_counts(tmp_path):
    task = broken_once_at(12)
    with Run.create("line", runs_dir=tmp_path) as run:
        config = FitConfig(steps=20, laps_every=0, log_every=5, smooth=5)
        result = fit(dataclasses.replace(task, optimizer=optax.sgd(0.1)), config, run, quiet=True)
    assert result.rollbacks == 1
    assert result.metrics["effective_update_scale"][-1] == 0.5
    assert Run.open(run.folder).controls == {"update_scale": 0.5, "clip": float("inf")}
    assert "update_scale now 0.5" in Run.open(run.folder).story
