"""All checks on a task, and the cheap ones at the start of a training."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing import check
from lapwing.data import ImageFileError
from lapwing.experiments import REGISTRY
from lapwing.models import ThinkerSize
from lapwing.task import Penalty, Task

from .models import pgd

HEALTHY = Task(
    init=lambda key: {"w": 0.1 * jax.random.normal(key, (3,)), "b": jnp.zeros(())},
    data=lambda key, step: _line(jax.random.normal(key, (16, 3))),
    loss=lambda params, batch: (jnp.mean((batch["x"] @ params["w"] + params["b"] - batch["y"]) ** 2), {}),
    penalties={"lasso": Penalty(1e-3, lambda params: jnp.sum(jnp.abs(params["w"])))},
    predict=lambda params, batch: batch["x"] @ params["w"] + params["b"],
    targets=lambda batch: batch["y"],
)


def _line(x: jax.Array) -> dict[str, jax.Array]:
    return {"x": x, "y": x @ jnp.array([1.0, -2.0, 0.5]) + 0.3}


def results(task: Any, **options) -> dict[str, str]:
    return {each.check: each.result for each in check.run_all(task, **options)}


def test_a_healthy_task_passes_all_that_applies():
    outcomes = {each.check: each for each in check.run_all(HEALTHY)}
    reasons = {name: each.detail for name, each in outcomes.items() if each.result == "not applicable"}
    assert reasons == {
        "causality": "the task does not define a prediction for each time step (see Task.predict)",
        "scale": "there is no jax.lax.scan in this function; a Python loop cannot be checked",
        "targets": "no part of the parameters is called a target, a teacher or an average of another",
        "leakage": "no validation data, and no tokens that are predicted from those before",
        "devices": "nothing is replicated: neither over devices, nor in the rows of all parameters",
        "attention": "no softmax of products with a mask or with heads was found",
        "symmetry": "no parameters are stacked along a first axis with equal rows",
    }
    assert outcomes["labels"].detail == (
        "the order of the examples does not matter; inputs and targets are related"
    )
    assert all(each.result == "passed" for name, each in outcomes.items() if name not in reasons)
    assert all(each.detail and each.seconds >= 0 for each in outcomes.values())


def test_without_a_prediction_a_check_says_what_it_needs():
    blind = dataclasses.replace(HEALTHY, predict=None)
    (outcome,) = check.run_all(blind, only=["batch_independence"])
    assert (outcome.result, outcome.detail) == (
        "not applicable",
        "the task does not define a prediction for each example (see Task.predict)",
    )


def test_several_mistakes_are_all_reported():
    sick = dataclasses.replace(
        HEALTHY,
        init=lambda key: {"w": jnp.ones(3), "b": jnp.zeros(()), "spare": jnp.zeros(2)},
        data=lambda key, step: _line(jax.random.normal(jax.random.key(0), (16, 3))),
    )
    found = results(sick, only=["fresh_data", "dead_parameters", "purity"])
    assert found == {"fresh_data": "failed", "purity": "passed", "dead_parameters": "failed"}


def test_an_attack_sees_the_parameters_and_the_loss_sees_the_attack():
    seen = dataclasses.replace(
        HEALTHY, prepare=lambda params, batch, key: batch | {"x": batch["x"] + 0.1 * jnp.sign(params["w"])}
    )
    assert results(seen, only=["dead_parameters", "fresh_data"]) == {
        "fresh_data": "passed",
        "dead_parameters": "passed",
    }


def test_an_attack_that_hands_its_best_image_on_is_found():
    def attacked(best_outside):
        def prepare(params, batch, key):
            return batch | {"x": pgd(params["w"][None], batch["x"], best_outside=best_outside)}

        return dataclasses.replace(HEALTHY, prepare=prepare)

    only = ["batch_independence"]
    assert results(attacked(best_outside=False), only=only) == {"batch_independence": "passed"}
    (outcome,) = check.run_all(attacked(best_outside=True), only=only)
    assert outcome.result == "failed"
    assert "carried from one example to the next" in outcome.detail


def test_an_expected_finding_is_reported_with_its_reason_and_is_no_failure():
    three_points = dataclasses.replace(
        HEALTHY,
        data=lambda key, step: _line(jnp.eye(3)),
        expected_findings={"fresh_data": "the data are three points", "structure": "unused"},
    )
    for outcomes in (
        check.run_all(three_points, only=["structure", "fresh_data"]),
        check.quick(three_points),
    ):
        found = {each.check: each for each in outcomes}
        assert (found["fresh_data"].result, found["structure"].result) == ("expected", "passed")
        assert found["fresh_data"].detail.startswith(
            "the data are three points; batch 1 is the same as batch 0"
        )


def test_what_does_not_fit_into_the_budget_is_skipped():
    outcomes = check.run_all(HEALTHY, budget_s=0.0, only=["gradients"])
    assert [(each.result, each.detail) for each in outcomes] == [("skipped", "the budget of 0 s is spent")]


def test_a_check_that_does_not_exist_is_refused():
    with pytest.raises(
        check.CheckInputError, match="'gradient' is not a check; there are structure, fresh_data"
    ):
        check.run_all(HEALTHY, only=["gradient"])


def test_the_quick_checks_pass_and_compile_little():
    outcomes = check.quick(HEALTHY)
    assert {each.check: each.result for each in outcomes} == dict.fromkeys(
        ["structure", "purity", "dead_parameters", "fresh_data", "can_learn"], "passed"
    )


def hidden_counter(params: Any, batch: Any, calls: list[int] = []) -> Any:  # noqa: B006 - that is the mistake
    calls.append(1)
    return HEALTHY.loss(params, batch)[0] * len(calls), {}


def widening(params: Any) -> optax.GradientTransformation:
    """An optimizer whose state begins in bfloat16 and comes back in float32."""
    return optax.GradientTransformation(
        lambda params: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.bfloat16), params),
        lambda slopes, state, params=None: (slopes, jax.tree.map(jnp.add, slopes, state)),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"data": lambda key, step: _line(jnp.arange(48.0).reshape(16, 3))},
            "batch 1 is the same as batch 0",
        ),
        (
            {"init": lambda key: {"w": jnp.ones(3), "b": jnp.zeros(()), "spare": jnp.zeros(2)}},
            r"the gradient of params\['spare'\] is zero whatever the parameters and the batch are",
        ),
        (
            {"loss": hidden_counter},
            "traced twice with the same arguments, the function is not the same program",
        ),
        (
            {"optimizer": widening(None)},
            r"\['b'\] is float32\[\] in optimizer_state_after_the_update and bfloat16\[\] in optimizer_state",
        ),
    ],
)
def test_the_quick_checks_find(change, message):
    with pytest.raises(check.CheckError, match=message):
        check.quick(dataclasses.replace(HEALTHY, **change))


def test_a_leaf_that_is_not_trained_needs_no_gradient():
    fixed = dataclasses.replace(
        HEALTHY,
        init=lambda key: {"w": jnp.ones(3), "b": jnp.zeros(()), "table": np.zeros(2, np.float32)},
        trainable=lambda params: {"w": True, "b": True, "table": False},
    )
    check.quick(fixed)


def built(experiment: Any, config: Any) -> Any:
    try:
        return experiment.build(config)
    except ImageFileError as missing:
        pytest.skip(str(missing))


def test_a_batch_may_hold_what_only_the_memory_of_a_task_needs():
    noted = dataclasses.replace(
        HEALTHY,
        memory=lambda key: jnp.zeros((), jnp.int32),
        data=lambda key, step, memory: HEALTHY.data(key, step) | {"which": jnp.arange(16)},
        remember=lambda memory, batch, metrics: memory + batch["which"][-1],
    )
    assert results(noted, only=["dead_parameters"]) == {"dead_parameters": "passed"}


def test_what_a_memory_hands_on_is_no_data():
    """States that are all zeros at first are no blank examples; other arrays that are all zeros still are."""

    def keeping(data: Any) -> Any:
        return dataclasses.replace(
            HEALTHY,
            memory=lambda key: jnp.zeros((16, 400)),
            data=lambda key, step, memory: data(key, step) | {"state": memory},
            remember=lambda memory, batch, metrics: memory + 1.0,
        )

    assert results(keeping(HEALTHY.data), only=["fresh_data"]) == {"fresh_data": "passed"}
    blank = keeping(lambda key, step: HEALTHY.data(key, step) | {"image": jnp.zeros((16, 300))})
    assert results(blank, only=["fresh_data"]) == {"fresh_data": "failed"}


# The sizes that take long to compute; all checks at full size are among the slow tests.
SMALL = {
    "latent-thinker": {"batch_size": 16, "model": ThinkerSize(width=16, layers=1)},
    "adversarial": {"batch_size": 16, "width": 1},
}
# Machines, as another one is; and those that the tests of their own models, or of `lapwing train`, check.
LONGER = (
    "adding",
    "dmm-lite",
    "dmm-synthesis",
    "superfluid",
    "superfluid-synthesis",
    "latent-thinker",
    "adversarial",
    "thinker",
)
QUICK = [pytest.param(name, marks=[pytest.mark.slow] * (name in LONGER)) for name in REGISTRY.entries]


@pytest.mark.parametrize("name", QUICK)
def test_the_experiments_of_this_repository_pass_the_quick_checks(name: str):
    experiment = REGISTRY.load(name)
    config = experiment.Config(**SMALL.get(name, {}))
    outcomes = check.quick(built(experiment, config), config)
    assert {each.result for each in outcomes} <= {"passed", "expected", "not applicable"}


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTRY.entries)
def test_the_experiments_of_this_repository_pass_everything(name: str):
    experiment = REGISTRY.load(name)
    config = experiment.Config()
    outcomes = check.run_all(built(experiment, config), config, budget_s=600)
    good = ("passed", "expected", "not applicable")
    assert [(each.check, each.detail) for each in outcomes if each.result not in good] == []
