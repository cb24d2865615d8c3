"""Bugs between the loss and the parameters: mask, clipping, penalties, optimizer, precision, schedule, rounds.

The doctor examines the step that `fit` runs. An earlier one, with a loss and an Adam of its own, passed every bug
in `CASES`. Each has a clean twin that differs in one thing.
"""

import dataclasses
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing import check
from lapwing.check._training import Training
from lapwing.task import Penalty, Rounds, Task, equinox
from lapwing.train import FitConfig, Schedule, fit
from tests.slow import some

CONFIG = FitConfig(learning_rate=1e-2)


def line(key: jax.Array, step: Any) -> dict[str, jax.Array]:
    x = jax.random.normal(key, (16, 3))
    return {"x": x, "y": x @ jnp.array([1.0, -2.0, 0.5]) + 1.0}


def loss(params: Any, batch: Any) -> Any:
    prediction = batch["x"] @ (params["gate"] * params["w"]) + params["b"]
    return jnp.mean((prediction - batch["y"]) ** 2), {}


def init(key: jax.Array, dtype: Any = jnp.float32) -> dict[str, jax.Array]:
    return {"gate": jnp.zeros((), dtype), "w": jnp.ones(3, dtype), "b": jnp.zeros((), dtype)}


GATED = Task(init=init, data=line, loss=loss)


def outcome(task: Task, name: str, config: FitConfig = CONFIG) -> check.Outcome:
    (result,) = check.run_all(task, config, only=[name])
    return result


def trained(**which: bool) -> dict[str, Any]:
    return {"trainable": lambda params: {name: which.get(name, True) for name in params}}


def labelled(**transforms: optax.GradientTransformation) -> dict[str, Any]:
    """One optimizer for each leaf, as one writes it to train a part of a model in another way."""
    return {
        "optimizer": lambda _: optax.partition(transforms, lambda params: {name: name for name in params})
    }


def in_bfloat16(learning_rate: float) -> tuple[dict[str, Any], FitConfig]:
    made = {"init": lambda key: init(key, jnp.bfloat16) | {"gate": jnp.ones((), jnp.bfloat16)}}
    return made, FitConfig(learning_rate=learning_rate)


def squares(params: Any) -> jax.Array:
    return sum(jnp.sum(leaf**2) for leaf in params.values())


ADAM = optax.adam(1e-2)
ALIVE = {"init": lambda key: init(key) | {"gate": jnp.ones(())}}
CASES = {
    "a mask freezes the gate at zero, so the weights behind it never have a gradient": (
        "dead_parameters",
        (trained(gate=False), CONFIG),
        (trained(), CONFIG),
        r"^params\['w'\] \(3 entries\) has no effect on the loss",
    ),
    "a label of the optimizer gives no update": (
        "dead_parameters",
        (labelled(gate=ADAM, w=optax.sgd(0.0), b=ADAM), CONFIG),
        (labelled(gate=ADAM, w=ADAM, b=ADAM), CONFIG),
        r"^64 updates leave every bit of params\['w'\] unchanged\. Look at the optimizer",
    ),
    "labels of the optimizer freeze all that is trained": (
        "dead_parameters",
        (labelled(gate=ADAM, w=optax.set_to_zero(), b=ADAM) | trained(gate=False, b=False) | ALIVE, CONFIG),
        (labelled(gate=ADAM, w=optax.set_to_zero(), b=ADAM) | ALIVE, CONFIG),
        r"^64 updates leave every bit of params\['w'\] unchanged\. Look at the optimizer",
    ),
    "two factors that are both zero, so that neither has a gradient": (
        "dead_parameters",
        ({"init": lambda key: init(key) | {"w": jnp.zeros(3)}}, CONFIG),
        ({}, CONFIG),
        r"params\['gate'\]; params\['w'\] unchanged: the gradient of params\['gate'\]; params\['w'\] is exactly zero "
        r"where the training begins.* Look at the initial values: .* such as the other factor of a low-rank adapter",
    ),
    "a mask of optax that hands on the gradients of the leaves that it leaves out": (
        "can_learn",
        ({"optimizer": optax.masked(ADAM, {"gate": True, "w": False, "b": True})}, FitConfig()),
        (labelled(gate=ADAM, w=optax.set_to_zero(), b=ADAM), CONFIG),
        r"^the updates of params\['w'\] point uphill, and others .* raw gradients .* Look at optax.masked",
    ),
    "updates are below the precision of bfloat16": (
        "dead_parameters",
        in_bfloat16(1e-3),
        in_bfloat16(1e-2),
        r"^64 updates leave every bit of params\['gate'\]; params\['w'\] unchanged: they are too small for bfloat16, "
        r"which rounds them away \(an update of 0.001 to params\['gate'\], where its numbers are 0.0078 apart\)",
    ),
    "a gradient whose norm overflows, so that every update is skipped": (
        "dead_parameters",
        ({"loss": lambda p, b: (1e20 * loss(p, b)[0], {})}, CONFIG),
        ({"loss": lambda p, b: (1e10 * loss(p, b)[0], {})}, CONFIG),
        r"^64 updates leave every bit .* norm of the gradient, which is inf: training skips such an update",
    ),
    "an optimizer without its minus sign, which makes the step ascend": (
        "can_learn",
        ({"optimizer": optax.scale_by_adam()}, FitConfig()),
        ({"optimizer": optax.adam(1e-2)}, FitConfig()),
        r"^the updates of the optimizer point uphill: .* write optimizer=optax.adam, or optimizer=lambda learning_rate",
    ),
    "a clip that leaves nothing of the gradient": (
        "can_learn",
        ({"optimizer": optax.sgd}, FitConfig(learning_rate=1e-2, clip=1e-4)),
        ({"optimizer": optax.sgd}, FitConfig(learning_rate=1e-2, clip=1.0)),
        r"^training on one batch does not reduce its loss enough: .* the mask, clip, and the weights of penalties",
    ),
    "a penalty that outweighs the data": (
        "can_learn",
        ({"penalties": {"size": Penalty(1e4, squares)}}, CONFIG),
        ({"penalties": {"size": Penalty(1e-4, squares)}}, CONFIG),
        r"^training on one batch does not reduce its loss",
    ),
}


@pytest.mark.parametrize("case", some(CASES, 0, 2, 3, 4, 5, 6, 7, 8))
def test_a_bug_in_the_step_fails_and_its_clean_twin_passes(case: str):
    name, (wrong, wrong_config), (right, right_config), message = CASES[case]
    found = outcome(dataclasses.replace(GATED, **wrong), name, wrong_config)
    assert found.result == "failed"
    assert re.search(message, found.detail), found.detail
    assert outcome(dataclasses.replace(GATED, **right), name, right_config).result == "passed"


def test_a_gradient_that_is_lost_with_an_index_out_of_range_is_explained_by_it():
    def task(rows: int) -> Task:
        return Task(
            init=lambda key: jax.random.normal(key, (rows, 2)),
            data=lambda key, step: jax.random.randint(key, (8,), 0, 6),
            loss=lambda table, tokens: (jnp.mean((table[tokens].sum(1) - tokens) ** 2), {}),
        )

    found = outcome(task(4), "gradients")
    assert found.result == "failed"
    assert "the program of the loss may show why: at test_step.py:" in found.detail
    assert "the batch looks up row" in found.detail
    assert outcome(task(6), "gradients").result == "passed"


def test_a_leaf_that_the_optimizer_freezes_is_reported():
    frozen = labelled(gate=ADAM, w=ADAM, b=optax.set_to_zero())
    found = outcome(dataclasses.replace(GATED, **frozen), "dead_parameters")
    assert found.result == "passed"
    assert found.detail.endswith("the optimizer freezes params['b']: its updates are a constant zero")


def test_a_gradient_whose_norm_overflows_makes_every_update_a_skipped_one():
    scaled = dataclasses.replace(GATED, loss=lambda params, batch: (1e20 * loss(params, batch)[0], {}))
    found = outcome(scaled, "dead_parameters")
    assert found.result == "failed"
    assert "the norm of the gradient, which is inf: training skips such an update" in found.detail


def test_the_checks_see_the_parameters_batches_and_updates_of_a_run():
    noted = dataclasses.replace(
        GATED,
        init=lambda key: init(key) | {"w": jax.random.normal(key, (3,))},
        prepare=lambda params, batch, key: batch | {"x": batch["x"] + jax.random.normal(key, (3,))},
        penalties={"size": Penalty(0.1, squares)},
        memory=lambda key: jax.random.normal(key, ()),
        data=lambda key, step, memory: line(key, step) | {"offset": memory},
        remember=lambda memory, batch, metrics: memory + 1,
        loss=lambda params, batch: (loss(params, batch)[0] + batch["offset"], {}),
        **trained(b=False),
    )
    config = FitConfig(steps=2, seed=7, learning_rate=0.1, clip=0.5, weight_decay=0.01, laps_every=0)
    training = Training(noted, config)
    state, first = training.step(training.state)
    state, second = training.step(state)
    result = fit(noted, config, quiet=True)
    np.testing.assert_array_equal(result.metrics["loss"], [first["loss"], second["loss"]])
    jax.tree.map(np.testing.assert_array_equal, result.params, state.params)
    np.testing.assert_allclose(training.loss(training.params, training.batch()), first["loss"], rtol=1e-6)


def test_a_warmup_is_over_when_the_checks_begin():
    slow = FitConfig(learning_rate=1e-2, steps=10**9, schedule=Schedule("cosine", warmup=10**8))
    assert outcome(GATED, "dead_parameters", slow).result == "passed"


def test_an_optimizer_that_accumulates_gradients_is_not_dead():
    def every_fourth(rate: Any) -> optax.MultiSteps:
        return optax.MultiSteps(optax.adam(rate), 4)

    assert outcome(dataclasses.replace(GATED, optimizer=every_fourth), "dead_parameters").result == "passed"


def test_a_task_with_rounds_is_checked_with_the_loss_of_its_first_round():
    def of_round(params: Any) -> Any:
        return lambda params, batch: (
            loss(params, batch)[0] + 0 * params["w"].sum(),
            {"round": jnp.zeros(())},
        )

    rounds = Rounds(10, lambda params, optimizer: pytest.fail("no round ends here"), of_round)
    _, metrics = Training(dataclasses.replace(GATED, rounds=rounds), CONFIG)._step.eval_shape(
        Training(GATED, CONFIG).state
    )
    assert "round" in metrics


def test_a_run_that_overfits_one_batch_on_purpose_has_no_fresh_data():
    overfit = FitConfig(overfit_batch=True)
    assert outcome(GATED, "fresh_data", overfit).detail == "overfit_batch trains on one batch"
    assert {each.result for each in check.quick(GATED, overfit)} == {"passed", "not applicable"}


def test_what_fit_refuses_is_one_outcome_with_the_same_sentence():
    wrong = dataclasses.replace(GATED, trainable=lambda params: {**params, "gate": True, "b": True})
    (found,) = check.run_all(wrong, CONFIG)
    assert (found.check, found.result) == ("task", "failed")
    assert found.detail.startswith("the mask of params['w'] should be a bool or a boolean array")
    (found,) = check.run_all(dataclasses.replace(GATED, init=lambda key: len(None)), CONFIG)  # pyright: ignore
    assert re.search(r"cannot be called: TypeError: object of type .* \(test_step.py:\d+\)", found.detail)


def test_an_error_inside_one_check_is_its_outcome_and_the_others_go_on():
    def predict(params: Any, batch: Any) -> Any:
        raise KeyError("no such layer")

    found = check.run_all(
        dataclasses.replace(GATED, predict=predict), CONFIG, only=["structure", "batch_independence"]
    )
    assert [each.result for each in found] == ["passed", "error"]
    assert re.search(r"could not be completed: KeyError: 'no such layer' \(test_step.py", found[1].detail)


@pytest.mark.parametrize(
    "optimizer",
    some(
        [
            optax.adam(1e-2),
            optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1e-2, 10_000, 20_000), weight_decay=1.0),
            optax.MultiSteps(optax.sgd(1e-2), 16),
            optax.contrib.sam(optax.sgd(1e-2), optax.sgd(1e-1)),
            optax.lamb(1e-2),
            optax.contrib.schedule_free_adamw(1e-2),
            optax.noisy_sgd(1e-2, key=0),
        ],
        0,
        2,
        6,
    ),
    ids=["adam", "warmup", "accumulating", "sharpness-aware", "lamb", "schedule-free", "noisy"],
)
def test_optimizers_that_descend_are_not_accused(optimizer: Any):
    found = check.quick(dataclasses.replace(GATED, optimizer=optimizer), FitConfig())
    assert found[-1].detail == "the updates of the optimizer point downhill"


@pytest.mark.parametrize(
    "optimizer", some([optax.scale_by_adam(), optax.trace(0.9), lambda rate: optax.scale(rate)], 0)
)
def test_an_optimizer_that_climbs_is_found_before_the_training(optimizer: Any):
    with pytest.raises(check.CheckError, match="the updates of the optimizer point uphill"):
        check.quick(dataclasses.replace(GATED, optimizer=optimizer), FitConfig())


def test_models_with_functions_state_and_keys_of_their_own_are_checked():
    """An Equinox module has leaves that are not trained, here a function; its loss takes a key for the dropout."""
    model = eqx.nn.Sequential([eqx.nn.Linear(3, 3, key=jax.random.key(0)), eqx.nn.Lambda(jnp.tanh)])

    def loss(model: Any, x: jax.Array, key: jax.Array) -> jax.Array:
        kept = jax.random.bernoulli(key, 0.9, x.shape)
        last, _ = jax.lax.scan(lambda h, _: (jax.vmap(model)(h), None), x * kept, length=4)
        return jnp.mean((last - 1) ** 2)

    task = equinox(model, loss, data=lambda key, step: jax.random.normal(key, (8, 3)))
    assert check.quick(task, CONFIG)[-1].detail == "the updates of the optimizer point downhill"
    found = check.run_all(task, CONFIG, only=["scale", "can_learn"])
    assert [outcome.result for outcome in found] == ["passed", "passed"]
    assert found[0].detail.startswith("1 loop keeps its size; over 4 steps")


class WithFunction(eqx.Module):
    layer: eqx.nn.Linear
    activation: Any

    def __call__(self, x: Any) -> jax.Array:
        return self.activation(self.layer(x))


@pytest.mark.slow
def test_checks_called_directly_take_modules_that_hold_functions():
    model, x = WithFunction(eqx.nn.Linear(3, 3, key=jax.random.key(0)), jnp.tanh), np.ones((2, 3), np.float32)

    def loss(model: Any, x: Any) -> jax.Array:
        return jnp.mean((jax.vmap(model)(x) - 1) ** 2)

    def step(model: Any, x: Any) -> tuple[Any, jax.Array]:
        return eqx.apply_updates(model, eqx.filter_grad(loss)(model, x)), loss(model, x)

    check.purity(step, model, x)
    check.purity(eqx.filter_jit(step), model, x)
    check.retrace(step, [(model, x)] * 2, carry=True)
    check.same_numbers(step, eqx.filter_jit(step), model, x)
    check.structure(params=model, gradient=eqx.filter_grad(loss)(model, x))
    check.batch_independence(lambda x: (jax.vmap(model)(x), {}), x * np.arange(6.0).reshape(2, 3))
