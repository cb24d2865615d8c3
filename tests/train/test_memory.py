"""A memory that a task keeps from step to step: in checkpoints, through rollbacks, and only where updates are made."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.check import run_all
from lapwing.journal import Run
from lapwing.task import Task
from lapwing.train import FitConfig, Rollback, fit
from lapwing.trees import StructureError
from tests.slow import some

from .tasks import line, same_bits

OPTIONS = {"learning_rate": 0.1, "laps_every": 0, "log_every": 5}


def learner(**changes) -> Task:
    """Its data spread further with each step it remembers, and a row of its table is the last it saw."""

    def batch(key, step, memory):
        return (1 + 0.1 * memory["seen"]) * jax.random.normal(key, (8, 3))

    def remember(memory, batch, metrics):
        row = memory["seen"] % 4
        return {
            "seen": memory["seen"] + 1,
            "rows": memory["rows"].at[row].set(batch[0]),
            "loss": metrics["loss"],
        }

    parts = {
        "memory": lambda key: {
            "seen": jnp.int32(0),
            "rows": jax.random.normal(key, (4, 3)),
            "loss": jnp.float32(0),
        },
        "data": batch,
        "remember": remember,
    }
    return line(**{**parts, **changes})


def trained(task: Task | None = None, run=None, **options):
    return fit(task or learner(), FitConfig(**{**OPTIONS, **options}), run, quiet=True)


def test_the_memory_is_what_the_task_made_of_each_step():
    result = trained(steps=6)
    assert int(result.state.memory["seen"]) == 6
    assert result.state.memory["loss"] == result.metrics["loss"][-1]
    key = jax.random.split(jax.random.key(0), 4)[1]
    last = 1.5 * jax.random.normal(jax.random.fold_in(key, 5), (8, 3))
    np.testing.assert_allclose(result.state.memory["rows"][5 % 4], last[0], rtol=1e-6)


@pytest.mark.parametrize("steps_per_call", some([3, 20], 0))
def test_the_numbers_do_not_depend_on_the_steps_in_a_call(steps_per_call: int):
    one, many = trained(steps=12), trained(steps=12, steps_per_call=steps_per_call)
    assert same_bits(one.metrics, many.metrics)
    assert same_bits(one.state.memory, many.state.memory)


def test_a_resumed_run_remembers(tmp_path: Path):
    whole = trained(steps=20)
    with Run.create("learner", runs_dir=tmp_path) as run:
        trained(run=run, steps=9)
    with Run.reopen(run.folder) as again:
        resumed = fit(learner(), FitConfig(**OPTIONS, steps=20), again, quiet=True, allow_change=True)
    assert same_bits(whole.state.memory, resumed.state.memory)
    assert same_bits(whole.params, resumed.params)


def test_it_is_prepare_that_has_the_last_word_on_the_batch():
    result = trained(learner(prepare=lambda params, batch, key: batch * 0 + 7), steps=2)
    assert result.state.memory["rows"][1].tolist() == [7, 7, 7]


def test_an_update_that_is_left_out_is_not_remembered():
    def batch(key, step, memory):
        return jnp.where(step == 3, 0.0, 1.0) * jax.random.normal(key, (8, 3))

    def norm(params, batch):  # At zero it is finite, and its slope is not.
        return jnp.sqrt(jnp.sum((batch @ (params["w"] - 1.0)) ** 2)) + params["b"] ** 2, {}

    result = trained(learner(data=batch, loss=norm), steps=6)
    assert (result.skipped, int(result.state.memory["seen"])) == (1, 5)


@pytest.mark.slow
def test_a_rollback_takes_the_memory_back():
    """From the 10th thing remembered on, the loss is not finite; each time it goes back to the best before that."""

    def batch(key, step, memory):
        return jnp.where(memory["seen"] < 10, 1.0, jnp.nan) * jax.random.normal(key, (8, 3))

    result = trained(learner(data=batch), steps=40, rollback=Rollback(times=1, patience=2))
    assert (result.ended, result.rollbacks) == ("failed", 1)
    assert int(result.state.memory["seen"]) == 10


def test_one_batch_again_and_again_needs_no_memory():
    result = trained(steps=5, overfit_batch=True)
    assert int(result.state.memory["seen"]) == 0


@pytest.mark.slow
def test_remembering_is_a_phase():
    times = trained(steps=5, laps_every=1).times
    assert [phase.path for phase in times.phases.phases][-2:] == ["update", "remember"]


def test_a_memory_that_changes_its_shape_is_refused():
    task = learner(remember=lambda memory, batch, metrics: {**memory, "rows": memory["rows"][:3]})
    with pytest.raises(
        StructureError, match=r"rows.* is float32\[3,3\] in memory_after_the_step and float32\[4,3\]"
    ):
        trained(task, steps=1)


def test_the_doctor_draws_batches_with_the_first_memory():
    outcomes = {each.check: each for each in run_all(learner(), only=("fresh_data", "structure"))}
    assert [each.result for each in outcomes.values()] == ["passed", "passed"]
