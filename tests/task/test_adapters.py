"""Models of other libraries, trained by `fit` and by hand with the same numbers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import lapwing as lw
from lapwing.journal import Run
from lapwing.task import Arrays, TaskError
from lapwing.train import FitConfig, fit

OPTIONS = FitConfig(steps=12, learning_rate=1e-2, laps_every=0, log_every=4)
X = np.random.default_rng(0).normal(size=(48, 5)).astype(np.float32) * 3 + 1
Y = (X[:, :1] * X[:, 1:2]).astype(np.float32)
DATA = Arrays((X, Y), 16, shuffle=False)


def batches(count=12):
    return [(X[k : k + 16], Y[k : k + 16]) for k in [0, 16, 32] * 4][:count]


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.layers = nnx.List([nnx.Linear(5, 8, rngs=rngs), nnx.Linear(8, 1, rngs=rngs)])
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.3, rngs=rngs)

    def __call__(self, x):
        return self.layers[1](self.dropout(jnp.tanh(self.norm(self.layers[0](x)))))


def nnx_loss(model, batch):
    x, y = batch
    error = jnp.mean((model(x) - y) ** 2)
    return error, {"double": 2 * error}


def flax_by_hand(model):
    model.train()
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, batch):
        (loss, _), gradient = nnx.value_and_grad(nnx_loss, has_aux=True)(model, batch)
        optimizer.update(model, gradient)
        return loss

    losses = [float(step(model, optimizer, batch)) for batch in batches()]
    model.eval()
    return losses, float(nnx_loss(model, (X, Y))[0])


def test_nnx_with_batch_norm_and_dropout_trains_as_a_flax_loop_does():
    task = lw.task.nnx(Net(nnx.Rngs(3)), nnx_loss, data=DATA, validation=Arrays((X, Y), 20))
    result = fit(task, OPTIONS, quiet=True)
    losses, last = flax_by_hand(Net(nnx.Rngs(3)))
    np.testing.assert_allclose(result.metrics["loss"], losses, rtol=1e-5)
    np.testing.assert_allclose(result.metrics["double"], 2 * result.metrics["loss"], rtol=1e-6)
    assert result.evaluation["eval_loss"] == pytest.approx(last, rel=1e-5)
    assert not np.allclose(result.state.model["norm"]["mean"], 0.0)


def test_a_function_of_rngs_makes_another_model_for_every_seed():
    task = lw.task.nnx(Net, nnx_loss, data=DATA)
    kernels = [task.init(jax.random.key(seed))[0]["layers"][0]["kernel"] for seed in (0, 1)]
    assert not np.allclose(*kernels)


class Attentive(nnx.Module):
    """Its attention is made without a mode, and refuses to run without one; its statistics are frozen."""

    def __init__(self, rngs: nnx.Rngs):
        self.attend = nnx.MultiHeadAttention(1, 5, decode=False, dropout_rate=0.5, rngs=rngs)
        self.norm = nnx.BatchNorm(5, use_running_average=True, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.attend(x[:, None]))[:, 0, :1]


@pytest.mark.slow
def test_nnx_parts_without_a_mode_are_trained_and_frozen_ones_stay_frozen():
    task = lw.task.nnx(Attentive, nnx_loss, data=DATA, predict=lambda model, batch: model(batch[0]))
    params, state = task.init(jax.random.key(0))
    key = jax.random.key(1)
    first, _, after = task.loss(params, (X, Y), state, key)
    second = task.loss(params, (X, Y), after, key)[0]
    assert first != second  # Dropout, whose random stream is in the state.
    np.testing.assert_array_equal(after["norm"]["mean"], state["norm"]["mean"])
    predictions = [task.predict(params, (X, Y), each) for each in (state, after)]
    np.testing.assert_array_equal(*predictions)


def test_a_run_with_state_is_resumed_exactly(tmp_path):
    def task():
        return lw.task.nnx(Net(nnx.Rngs(3)), nnx_loss, data=DATA)

    whole = fit(task(), OPTIONS, quiet=True)
    with Run.create("a", runs_dir=tmp_path) as run:
        Run.open(run.folder).post("stop")
        assert fit(task(), OPTIONS, run, quiet=True).ended == "stopped"
    with Run.reopen(run.folder) as run:
        again = fit(task(), OPTIONS, run, quiet=True)
    assert jax.tree.all(jax.tree.map(np.array_equal, whole.state, again.state))


class Spectral(eqx.Module):
    layer: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    activation: object
    steps: int = 3

    def __init__(self, key):
        self.layer = eqx.nn.Linear(5, 1, key=key)
        self.activation = jnp.tanh
        self.norm = eqx.nn.BatchNorm(5, axis_name="batch", mode="batch")

    def __call__(self, x, state):
        x, state = self.norm(x, state)
        return self.activation(self.layer(x)), state


def test_equinox_with_state_trains_as_a_loop_by_hand():
    def loss(model, batch, state, key):
        x, y = batch
        out, state = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)
        return jnp.mean((out - y) ** 2), {}, state

    make = eqx.nn.make_with_state(Spectral)
    task = lw.task.equinox(make(jax.random.key(0)), loss, data=DATA, validation=Arrays((X, Y), 48))
    result = fit(task, OPTIONS, quiet=True)

    model, state = make(jax.random.key(0))
    optimizer = optax.adam(1e-2)
    memory = optimizer.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit
    def step(model, state, memory, batch):
        def value(model, state):
            error, _, state = loss(model, batch, state, None)
            return error, state

        (error, state), gradient = eqx.filter_value_and_grad(value, has_aux=True)(model, state)
        updates, memory = optimizer.update(gradient, memory)
        return eqx.apply_updates(model, updates), state, memory, error

    losses = []
    for batch in batches():
        model, state, memory, error = step(model, state, memory, batch)
        losses.append(float(error))
    np.testing.assert_allclose(result.metrics["loss"], losses, rtol=1e-5)
    expected = loss(eqx.nn.inference_mode(model), (X, Y), state, None)[0]
    assert result.evaluation["eval_loss"] == pytest.approx(float(expected), rel=1e-5)


def test_the_state_of_equinox_starts_with_the_types_that_a_step_returns():
    make = eqx.nn.make_with_state(lambda: eqx.nn.BatchNorm(3, axis_name="batch", mode="batch"))
    task = lw.task.equinox(
        lambda key: make(),
        lambda model, batch, state, key: (jnp.zeros(()), {}, state),
        data=lambda key, step: jnp.zeros((4, 3)),
    )
    leaves = jax.tree.leaves(task.init(jax.random.key(0))[1])
    assert leaves
    assert not any(leaf.weak_type for leaf in leaves)


@pytest.mark.slow
def test_equinox_with_dropout_gets_another_key_at_every_step():
    def loss(model, batch, key):
        x, y = batch
        keys = jax.random.split(key, len(x))
        out = jax.vmap(lambda x, key: model(x, key=key))(x, keys)
        return jnp.mean((out - y) ** 2), {"draw": jax.random.uniform(key)}

    def make(key):
        return eqx.nn.Sequential([eqx.nn.Linear(5, 1, key=key), eqx.nn.Dropout(0.5)])

    task = lw.task.equinox(make, loss, data=DATA, predict=lambda model, batch: jax.vmap(model)(batch[0]))
    result = fit(task, OPTIONS, quiet=True)
    assert len({*result.metrics["draw"].tolist()}) == 12
    twice = fit(task, OPTIONS, quiet=True)
    np.testing.assert_array_equal(result.metrics["loss"], twice.metrics["loss"])
    assert task.predict(result.params, (jnp.asarray(X), Y)).shape == (48, 1)  # In inference mode: no key.


class Dense(linen.Module):
    @linen.compact
    def __call__(self, x, train: bool):
        x = linen.BatchNorm(use_running_average=not train, momentum=0.9)(linen.Dense(8)(x))
        return linen.Dense(1)(linen.Dropout(0.2, deterministic=not train)(jnp.tanh(x)))


def test_linen_keeps_what_a_call_changes():
    task = lw.task.linen(Dense(), nnx_loss, jnp.ones((1, 5)), data=DATA, validation=Arrays((X, Y), 48))
    result = fit(task, OPTIONS, quiet=True)
    stats = result.state.model["batch_stats"]["BatchNorm_0"]["mean"]
    assert not np.allclose(stats, 0.0)
    variables = {"params": result.params, **result.state.model}
    expected = np.mean((Dense().apply(variables, X, train=False) - Y) ** 2)
    assert result.evaluation["eval_loss"] == pytest.approx(float(expected), rel=1e-5)
    assert result.evaluation["eval_loss"] != pytest.approx(float(result.metrics["loss"][-1]), rel=1e-3)


@pytest.mark.parametrize("returned", [lambda loss: (loss, 1.0, {}), lambda loss: (loss, 2.0)])
def test_what_a_loss_should_return(returned):
    task = lw.task.nnx(Net, lambda model, batch: returned(jnp.mean(model(batch[0]))), data=DATA)
    with pytest.raises(TaskError, match="loss should return the loss, or \\(loss, metrics\\)"):
        fit(task, OPTIONS, quiet=True)


def test_a_module_as_parameters_is_answered_with_the_adapter():
    def make(key):
        return eqx.nn.MLP(5, 1, 8, 1, key=key)

    task = lw.task.Task(init=make, data=DATA, loss=lambda m, batch: (jnp.mean(jax.vmap(m)(batch[0])), {}))
    with pytest.raises(TaskError, match=r"lapwing\.task\.equinox"):
        fit(task, OPTIONS, quiet=True)


def test_bfloat16_computes_in_bfloat16_and_keeps_float32():
    seen = {}

    def loss(params, batch):
        seen["dtypes"] = params["w"].dtype, batch[0].dtype, batch[1].dtype
        return jnp.mean((batch[0] @ params["w"] - batch[1]) ** 2), {}

    task = lw.task.Task(init=lambda key: {"w": jnp.zeros((5, 1))}, data=DATA, loss=loss)
    half = fit(task, FitConfig(steps=12, learning_rate=1e-2, laps_every=0, precision="bfloat16"), quiet=True)
    assert seen["dtypes"] == (jnp.bfloat16,) * 3
    assert half.params["w"].dtype == jnp.float32
    assert half.metrics["loss"].dtype == np.float32
    full = fit(task, OPTIONS, quiet=True)
    np.testing.assert_allclose(half.metrics["loss"], full.metrics["loss"], rtol=0.05)
    assert not np.array_equal(half.metrics["loss"], full.metrics["loss"])


def test_the_moving_average_is_what_is_evaluated():
    task = lw.task.Task(
        init=lambda key: {"w": jnp.ones(2)},
        data=lambda key, step: jnp.zeros(()),
        loss=lambda params, batch: (jnp.sum(params["w"]), {}),
        evaluate=lambda params, key: {"w": params["w"][0]},
        optimizer=optax.sgd,
    )
    config = FitConfig(steps=4, learning_rate=0.1, ema=0.5, evaluate_every=1, laps_every=0)
    result = fit(task, config, quiet=True)
    average, weight = 1.0, 1.0
    for _ in range(4):
        weight -= 0.1
        average = 0.5 * average + 0.5 * weight
    assert result.evaluation["eval_w"] == pytest.approx(average, rel=1e-5)
    assert float(result.params["w"][0]) == pytest.approx(0.6, rel=1e-5)


def test_a_state_does_not_change_where_an_update_is_skipped():
    task = lw.task.Task(
        init=lambda key: ({"w": jnp.ones(2)}, jnp.zeros((), jnp.int32)),
        data=lambda key, step: step,
        loss=lambda params, step, state, key: (
            jnp.where(step == 2, jnp.nan, 1.0) * jnp.sum(params["w"] ** 2),
            {},
            state + 1,
        ),
    )
    from lapwing.train import Rollback

    config = FitConfig(steps=5, laps_every=0, rollback=Rollback(times=0), log_every=1)
    result = fit(task, config, quiet=True)
    assert result.ended == "failed"
    assert int(result.state.model) == 2


def test_init_of_a_task_with_state_returns_two():
    task = lw.task.Task(jnp.zeros, lambda key, step: step, lambda params, batch, state, key: (0.0, {}, state))
    with pytest.raises(TaskError, match="init\\(key\\) should return parameters and state"):
        fit(lw.task.Task(lambda key: {"w": jnp.ones(2)}, task.data, task.loss), OPTIONS, quiet=True)
