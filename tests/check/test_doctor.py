"""All checks on a task, and the cheap ones at the start of a training."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing import check
from lapwing.data import DigitsError
from lapwing.experiments import REGISTRY
from lapwing.task import Penalty, Task

from .models import pgd

HEALTHY = Task(
    init=lambda key: {"w": 0.1 * jax.random.normal(key, (3,)), "b": jnp.zeros(())},
    data=lambda key, step: _line(jax.random.normal(key, (16, 3))),
    loss=lambda params, batch: (jnp.mean((batch["x"] @ params["w"] + params["b"] - batch["y"]) ** 2), {}),
    penalties={"lasso": Penalty(1e-3, lambda params: jnp.sum(jnp.abs(params["w"])))},
)
ANATOMY = check.Anatomy(
    predict=lambda params, batch: batch["x"] @ params["w"] + params["b"], targets=lambda batch: batch["y"]
)


def _line(x: jax.Array) -> dict[str, jax.Array]:
    return {"x": x, "y": x @ jnp.array([1.0, -2.0, 0.5]) + 0.3}


def results(task: Any, **options) -> dict[str, str]:
    return {each.check: each.result for each in check.run_all(task, **options)}


def test_a_healthy_task_passes_all_that_applies():
    outcomes = check.run_all(HEALTHY, anatomy=ANATOMY)
    assert [each.check for each in outcomes if each.result == "does not apply"] == ["causality", "scale"]
    assert all(each.result == "passed" for each in outcomes if each.check not in ("causality", "scale"))
    assert all(each.detail and each.seconds >= 0 for each in outcomes)


def test_without_an_anatomy_two_checks_say_what_they_would_need():
    (outcome,) = check.run_all(HEALTHY, only=["batch_independence"])
    assert (outcome.result, outcome.detail) == (
        "does not apply",
        "the task does not say what it predicts for each example (see check.Anatomy)",
    )


def test_several_mistakes_are_all_told():
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

    options = {"anatomy": ANATOMY, "only": ["batch_independence"]}
    assert results(attacked(best_outside=False), **options) == {"batch_independence": "passed"}
    (outcome,) = check.run_all(attacked(best_outside=True), **options)
    assert outcome.result == "failed"
    assert "carried from one example to the next" in outcome.detail


def test_what_is_meant_is_told_with_its_reason_and_is_no_failure():
    same = dataclasses.replace(HEALTHY, batch=lambda key, step: _line(jnp.eye(3)))
    meant = check.Anatomy(meant={"fresh_data": "the data are three points", "purity": "nothing"})
    outcomes = check.run_all(same, anatomy=meant, only=["fresh_data", "purity"])
    assert [each.result for each in outcomes] == ["meant", "passed"]
    assert outcomes[0].detail.startswith("the data are three points; batch 1 is the same as batch 0")


def test_what_no_time_is_left_for_is_left_out():
    outcomes = check.run_all(HEALTHY, budget_s=0.0, only=["gradients"])
    assert [(each.result, each.detail) for each in outcomes] == [("left out", "the budget of 0 s is spent")]


def test_a_check_that_does_not_exist_is_refused():
    with pytest.raises(
        check.CheckInputError, match="'gradient' is not a check; there are structure, fresh_data"
    ):
        check.run_all(HEALTHY, only=["gradient"])


def test_the_quick_checks_pass_and_compile_little():
    outcomes = check.quick(HEALTHY, jax.random.key(0))
    assert {each.check: each.result for each in outcomes} == dict.fromkeys(
        ["structure", "purity", "dead_parameters", "fresh_data"], "passed"
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
            {"batch": lambda key, step: _line(jnp.arange(48.0).reshape(16, 3))},
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
            r"\['b'\] is float32\[\] in updated_optimizer and bfloat16\[\] in optimizer",
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


def built(experiment: Any) -> Any:
    try:
        return experiment.build(experiment.Config())
    except DigitsError as missing:
        pytest.skip(str(missing))


def test_a_batch_may_hold_what_only_the_memory_of_a_task_needs():
    noted = dataclasses.replace(
        HEALTHY,
        memory=lambda key: jnp.zeros((), jnp.int32),
        data=lambda key, step, memory: HEALTHY.batch(key, step) | {"which": jnp.arange(16)},
        remember=lambda memory, batch, metrics: memory + batch["which"][-1],
    )
    assert results(noted, only=["dead_parameters"]) == {"dead_parameters": "passed"}


@pytest.mark.parametrize("name", REGISTRY.entries)
def test_the_experiments_of_this_repository_pass_the_quick_checks(name: str):
    outcomes = check.quick(built(REGISTRY.load(name)))
    assert {each.result for each in outcomes} <= {"passed", "does not apply"}


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTRY.entries)
def test_the_experiments_of_this_repository_pass_everything(name: str):
    experiment = REGISTRY.load(name)
    anatomy = getattr(experiment, "anatomy", lambda config: None)(experiment.Config())
    outcomes = check.run_all(built(experiment), anatomy=anatomy, budget_s=600)
    good = ("passed", "meant", "does not apply")
    assert [(each.check, each.detail) for each in outcomes if each.result not in good] == []
