"""What training does not move, moves the wrong way, or moves by a part of the batch: each with a twin that is right."""

from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

from lapwing import check
from lapwing.check import CheckError, run_all
from lapwing.check._memory import check_memory
from lapwing.task import Task

PARAMS = {"w": jnp.ones((3, 2)), "b": jnp.ones(2), "scale": jnp.ones(3)}


def outcome(task: Task, name: str) -> tuple[str, str]:
    (found,) = run_all(task, only=[name])
    return found.result, found.detail


# Decay.


@pytest.mark.parametrize("is_decayed", [lambda leaf: leaf.ndim < 2, lambda leaf: leaf.ndim != 2])
def test_a_mask_of_the_decay_that_is_the_other_way_round_is_found(is_decayed: Any):
    def adamw(of: Any) -> Any:
        return optax.adamw(1e-3, weight_decay=0.1, mask=lambda params: jax.tree.map(of, params))

    with pytest.raises(
        CheckError, match=r"the weight decay acts on the vectors \(params\['b'\]; params\['scale'\]\)"
    ):
        check.optimizer(adamw(is_decayed), PARAMS)
    check.optimizer(adamw(lambda leaf: not is_decayed(leaf)), PARAMS)
    check.optimizer(adamw(lambda leaf: True), PARAMS)
    check.optimizer(adamw(lambda leaf: leaf.shape == (3,)), PARAMS)  # One vector, on purpose.


def test_biases_that_are_fine_tuned_may_decay():
    which: dict[str, Hashable] = {"w": "frozen", "b": "trained", "scale": "trained"}
    parts: dict[Hashable, Any] = {
        "trained": optax.adamw(1e-3, weight_decay=0.1),
        "frozen": optax.set_to_zero(),
    }
    check.optimizer(optax.multi_transform(parts, which), PARAMS)
    check.optimizer(optax.MultiSteps(optax.multi_transform(parts, which), 2), PARAMS)
    parts["frozen"] = optax.adam(1e-3)
    with pytest.raises(CheckError, match=r"on no matrix \(params\['w'\]\)"):
        check.optimizer(optax.MultiSteps(optax.multi_transform(parts, which), 2), PARAMS)


# Moments.


def rebuilt(make: Any, anew: bool) -> optax.GradientTransformation:
    made = make(1e-3)
    return optax.GradientTransformation(
        made.init,
        lambda updates, state, params=None: made.update(
            updates, made.init(params) if anew else state, params
        ),
    )


@pytest.mark.parametrize("make", [optax.adam, lambda rate: optax.sgd(rate, 0.9), optax.rmsprop])
def test_moments_that_are_written_and_never_read_are_found(make: Any):
    with pytest.raises(
        CheckError, match="in each update and never reads it: its moments are those of one gradient"
    ):
        check_memory(rebuilt(make, anew=True), PARAMS)
    check_memory(rebuilt(make, anew=False), PARAMS)


def test_a_state_without_moments_or_with_the_last_gradient_passes():
    last = optax.GradientTransformation(
        lambda params: params,
        lambda updates, state, params=None: (jax.tree.map(jnp.negative, updates), updates),
    )
    for made in (
        optax.sgd(1e-3),
        optax.adafactor(1e-3),
        optax.MultiSteps(optax.adam(1e-3), 4).gradient_transformation(),
        optax.optimistic_gradient_descent(1e-3),
        last,
    ):
        check_memory(made, PARAMS)


# Groups.


def groups(slow: Any) -> Task:
    def optimizer(learning_rate: Any) -> optax.GradientTransformation:
        made: dict[Hashable, Any] = {"fast": optax.adam(learning_rate), "slow": slow}
        return optax.multi_transform(made, {"w": "fast", "log_spread": "slow"})

    def data(key: jax.Array, step: Any) -> Any:
        x = jax.random.normal(key, (32, 3))
        return {"x": x, "y": x.sum(1) + 0.1 * x[:, 0] ** 2}

    def loss(params: Any, batch: Any) -> Any:
        error = (batch["x"] @ params["w"] - batch["y"]) * jnp.exp(-params["log_spread"])
        return jnp.mean(0.5 * error**2 + params["log_spread"]), {}

    init = lambda key: {"w": jax.random.normal(key, (3,)), "log_spread": jnp.zeros(())}  # noqa: E731
    return Task(init=init, data=data, loss=loss, optimizer=optimizer)


def test_a_group_that_climbs_is_found():
    result, detail = outcome(groups(optax.chain(optax.scale_by_adam(), optax.scale(0.001))), "can_learn")
    assert result == "failed"
    assert detail.startswith(
        "the updates of params['log_spread'] point uphill, and others downhill: the loss has a"
    )
    assert (
        outcome(groups(optax.chain(optax.scale_by_adam(), optax.scale(-0.001))), "can_learn")[0] == "passed"
    )


def test_a_multiplier_is_maximized_on_purpose():
    def loss(params: Any, x: jax.Array) -> Any:
        return jnp.mean((x @ params["w"] - 1) ** 2) + params["price"] * (jnp.sum(params["w"] ** 2) - 0.5), {}

    made: dict[Hashable, Any] = {"down": optax.adam(1e-2), "up": optax.scale(0.01)}
    task = Task(
        init=lambda key: {"w": jax.random.normal(key, (3,)), "price": jnp.ones(())},
        data=lambda key, step: jax.random.normal(key, (16, 3)),
        loss=loss,
        optimizer=optax.multi_transform(made, {"w": "down", "price": "up"}),
    )
    assert "uphill" not in outcome(task, "can_learn")[1]


# Tables.


def bag(frozen: str, is_random: bool = True) -> Task:
    def init(key: jax.Array) -> Any:
        rows = jax.random.normal(key if is_random else jax.random.key(9), (20, 4))
        return {"embed": rows, "centers": jax.random.normal(key, (4, 5)), "out": jnp.zeros((5, 3))}

    def optimizer(learning_rate: Any) -> optax.GradientTransformation:
        made: dict[Hashable, Any] = {"fixed": optax.set_to_zero(), "free": optax.adam(learning_rate)}
        return optax.multi_transform(
            made, {name: "fixed" if name in frozen else "free" for name in ("embed", "centers", "out")}
        )

    def data(key: jax.Array, step: Any) -> Any:
        words = jax.random.randint(key, (16, 6), 0, 20)
        return {"words": words, "y": words.sum(1) % 3}

    def loss(params: Any, batch: Any) -> Any:
        h = jnp.tanh(params["embed"][batch["words"]].mean(1) @ params["centers"])
        return optax.softmax_cross_entropy_with_integer_labels(h @ params["out"], batch["y"]).mean(), {}

    return Task(init=init, data=data, loss=loss, optimizer=optimizer)


def test_a_frozen_table_of_random_rows_is_reported():
    said = "params['embed'], which the model looks up, has random rows: are they meant to stay?"
    for task, is_said in (
        (bag("embed centers"), True),
        (bag("centers"), False),
        (bag("embed centers", is_random=False), False),
    ):
        result, detail = outcome(task, "dead_parameters")
        assert (result, said in detail) == ("passed", is_said)


# States.


def placed(trained: bool) -> Task:
    """With places that are parameters, or a state."""

    def init(key: jax.Array) -> Any:
        place = 0.1 * jax.random.normal(key, (5, 4))
        params = {"in": jax.random.normal(key, (4, 4)), "out": jnp.ones((4, 1))}
        return ({**params, "place": place}, {}) if trained else (params, {"place": place})

    def predict(params: Any, batch: Any, state: Any) -> jax.Array:
        place = params["place"] if trained else state["place"]
        return jnp.tanh(batch["x"] @ params["in"] + place) @ params["out"]

    def data(key: jax.Array, step: Any) -> Any:
        x = jax.random.normal(key, (16, 5, 4))
        return {"x": x, "y": x[..., :1] ** 2}

    def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        return jnp.mean((predict(params, batch, state) - batch["y"]) ** 2), {}, state

    return Task(init=init, data=data, loss=loss, predict=predict)


def test_random_weights_in_the_state_are_found():
    result, detail = outcome(placed(trained=False), "untrained")
    assert result == "failed"
    assert detail.startswith(
        "state['place'] is drawn at random and never trained: it is a state of the model"
    )
    assert outcome(placed(trained=True), "untrained")[0] != "failed"


def test_random_features_of_the_inputs_may_be_a_state():
    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"w": jnp.ones(12)}, {
            "pace": jax.random.normal(k1, (3, 12)),
            "phase": jax.random.normal(k2, (12,)),
        }

    def predict(params: Any, batch: Any, state: Any) -> jax.Array:
        return jnp.cos(batch["x"] @ state["pace"] + state["phase"]) @ params["w"]

    def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        return jnp.mean((predict(params, batch, state) - batch["x"][:, 0]) ** 2), {}, state

    task = Task(
        init=init, data=lambda key, step: {"x": jax.random.normal(key, (16, 3))}, loss=loss, predict=predict
    )
    assert outcome(task, "untrained")[0] != "failed"


@pytest.mark.parametrize("name", ["mean", "center"])
def test_statistics_that_an_earlier_training_left_are_no_weights(name: str):
    def init(key: jax.Array) -> Any:
        return {"w": jnp.ones((9, 1))}, {name: jax.random.normal(key, (12, 9)).mean(0)}

    def predict(params: Any, batch: Any, state: Any) -> jax.Array:
        return (jnp.tanh(batch["x"] * params["w"][:, 0]) - state[name]) @ params["w"]

    def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        return jnp.mean((predict(params, batch, state) - batch["x"][:, :1]) ** 2), {}, state

    task = Task(
        init=init, data=lambda key, step: {"x": jax.random.normal(key, (16, 9))}, loss=loss, predict=predict
    )
    assert outcome(task, "untrained")[0] != "failed"


def normed(part: Any, masked: bool = False) -> Task:
    def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        h = batch["x"] @ params["w"]
        used = part(h)
        state = {
            "mean": 0.9 * state["mean"] + 0.1 * used.mean(0),
            "var": 0.9 * state["var"] + 0.1 * used.var(0),
        }
        error = jnp.mean(
            (jnp.tanh((h - h.mean(0)) / h.std(0)).sum(1) - batch["y"]) ** 2 * (batch["m"] if masked else 1)
        )
        return error, {}, state

    def predict(params: Any, batch: Any, state: Any) -> jax.Array:
        return jnp.tanh((batch["x"] @ params["w"] - state["mean"]) / jnp.sqrt(state["var"])).sum(1)

    def data(key: jax.Array, step: Any) -> Any:
        x = jax.random.normal(key, (16, 3))
        return {"x": x, "y": x[:, 0], "m": jnp.ones(16)}

    return Task(
        init=lambda key: ({"w": jax.random.normal(key, (3, 4))}, {"mean": jnp.zeros(4), "var": jnp.ones(4)}),
        data=data,
        loss=loss,
        predict=predict,
    )


@pytest.mark.parametrize(
    "part", [lambda h: h[:4], lambda h: h.reshape(4, 4, 4)[-1]], ids=["first", "last device"]
)
def test_statistics_of_a_part_of_the_batch_are_found(part: Any):
    result, detail = outcome(normed(part), "modes")
    assert result == "failed"
    assert "are those of a part of the batch (of 4 of 16 examples" in detail
    assert outcome(normed(lambda h: h), "modes")[0] == "passed"


def tuned(mean: Any, in_loss: bool = True) -> Task:
    """Statistics that no step changes, of an earlier training or of none."""

    def predict(params: Any, batch: Any, state: Any) -> jax.Array:
        return jnp.tanh(batch["x"] - state["mean"]) @ params["w"]

    def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        own = state if in_loss else {"mean": batch["x"].mean(0)}
        return jnp.mean((predict(params, batch, own) - batch["y"]) ** 2), {}, state

    def data(key: jax.Array, step: Any) -> Any:
        x = jax.random.normal(key, (16, 3))
        return {"x": x, "y": x[:, 0]}

    return Task(init=lambda key: ({"w": jnp.ones(3)}, {"mean": mean}), data=data, loss=loss, predict=predict)


def test_statistics_of_an_earlier_training_may_stay():
    kept = jnp.array([0.3, -0.2, 1.0])
    assert outcome(tuned(kept), "modes")[0] == "passed"
    for wrong in (tuned(jnp.zeros(3)), tuned(kept, in_loss=False)):
        result, detail = outcome(wrong, "modes")
        assert (result, detail.partition(" statistics")[0]) == (
            "failed",
            "a step of training changes none of the",
        )
