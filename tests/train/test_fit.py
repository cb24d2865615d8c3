import json
import math
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing.journal import Run
from lapwing.task import Task
from lapwing.train import FitConfig, Rollback, fit
from tests.slow import some

from .tasks import line, same_bits


def train(task: Task | None = None, run=None, **options):
    return fit(
        task or line(), FitConfig(**{"laps_every": 0, "learning_rate": 0.1, **options}), run, quiet=True
    )


def test_it_learns():
    result = train(steps=200)
    assert result.ended == "finished"
    np.testing.assert_allclose(result.params["w"], 1.0, atol=0.01)
    assert int(result.state.step) == 200
    assert result.metrics["distance"][0] == 1.0
    assert all(len(values) == 200 for values in result.metrics.values())


def test_one_step_is_the_gradient_step_of_a_textbook():
    task = line(optimizer=optax.sgd)
    key = jax.random.split(jax.random.key(5), 4)[1]
    params = {"w": jnp.zeros(3), "b": jnp.float32(0.5)}
    for step in range(3):
        batch = jax.random.normal(jax.random.fold_in(key, step), (8, 3))
        gradient = jax.grad(lambda p, x: task.loss(p, x)[0])(params, batch)
        params = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)
    result = train(task, steps=3, seed=5)
    np.testing.assert_allclose(result.params["w"], params["w"], rtol=1e-6)
    np.testing.assert_allclose(result.params["b"], params["b"], rtol=1e-6)


@pytest.mark.parametrize("steps_per_call", some([2, 7, 30, 100], 1))
def test_the_numbers_do_not_depend_on_the_steps_in_a_call(steps_per_call: int):
    one, many = train(steps=30), train(steps=30, steps_per_call=steps_per_call)
    assert same_bits(one.state.params, many.state.params)
    assert same_bits(one.metrics, many.metrics)


def test_the_numbers_do_not_change_by_being_timed_or_logged(tmp_path: Path):
    plain = train(steps=20)
    with Run.create("line", runs_dir=tmp_path) as run:
        timed = train(steps=20, laps_every=1, log_every=1, run=run)
    assert same_bits(plain.metrics, timed.metrics)
    assert same_bits(plain.params, timed.params)


def test_a_seed_says_everything():
    assert same_bits(train(steps=10, seed=3).metrics, train(steps=10, seed=3).metrics)
    assert not same_bits(train(steps=10, seed=3).metrics, train(steps=10, seed=4).metrics)


def test_each_step_has_data_of_its_own():
    def loss(params, batch):
        return params["b"] ** 2, {"seen": batch[0, 0]}

    seen = train(line(loss=loss), steps=50).metrics["seen"]
    assert len(set(seen.tolist())) == 50


def test_arrays_of_the_caller_stay_alive():
    mine = {"w": jnp.zeros(3), "b": jnp.float32(0.5)}
    train(line(init=lambda key: mine), steps=3)
    assert mine["w"].tolist() == [0, 0, 0]


def test_parameters_that_share_their_memory_are_no_problem():
    w = jnp.zeros(3)
    task = line(
        init=lambda key: {"w": w, "v": w, "b": jnp.float32(0)},
        loss=lambda p, x: (jnp.mean((x @ (p["w"] + p["v"] - 1)) ** 2), {}),
    )
    assert train(task, steps=5).ended == "finished"


def test_the_gradient_is_clipped_to_its_norm():
    result = train(steps=20, clip=0.5)
    norms, clipped = result.metrics["gradient_norm"], result.metrics["clipped_norm"]
    assert norms[0] > 0.5
    np.testing.assert_allclose(clipped, np.minimum(norms, 0.5), rtol=1e-6)
    gentle = train(line(optimizer=optax.sgd), steps=1, clip=0.5, learning_rate=1.0)
    moved = np.sqrt(np.sum(np.square(gentle.params["w"])) + (0.5 - float(gentle.params["b"])) ** 2)
    assert moved == pytest.approx(0.5, rel=1e-5)


def test_without_a_clip_nothing_is_scaled():
    result = train(steps=5)
    assert same_bits(result.metrics["gradient_norm"], result.metrics["clipped_norm"])


def test_every_step_is_in_the_run_folder(tmp_path: Path):
    task = line(evaluate=lambda params, key: {"distance": jnp.max(jnp.abs(params["w"] - 1.0))})
    with Run.create("line", runs_dir=tmp_path) as run:
        result = train(task, steps=25, steps_per_call=4, log_every=7, evaluate_every=10, run=run)
    columns = run.columns()
    trained = ~np.isnan(np.asarray(columns["loss"]))
    assert np.asarray(columns["step"])[trained].tolist() == list(range(25))
    np.testing.assert_array_equal(columns["loss"][trained].astype(np.float32), result.metrics["loss"])
    evaluated = ~np.isnan(np.asarray(columns["eval_distance"]))
    # Evaluation comes at the first end of a call after every tenth step, and at the end.
    assert np.asarray(columns["step"])[evaluated].tolist() == [12, 20, 25]
    assert result.evaluation == {"eval_distance": columns["eval_distance"][-1]}
    assert Run.open(run.folder).state == "finished"
    assert "**finished**: 25 steps in " in run.story
    assert run.events()[-1]["steps"] == 25


def test_a_long_window_is_written_in_pieces_without_loss(tmp_path: Path):
    with Run.create("line", runs_dir=tmp_path) as run:
        result = train(steps=1300, steps_per_call=100, log_every=600, run=run)
    columns = run.columns()
    assert columns["step"].tolist() == list(range(1300))
    np.testing.assert_array_equal(columns["loss"].astype(np.float32), result.metrics["loss"])


def test_evaluation_always_sees_the_same_data():
    draw = line(evaluate=lambda params, key: {"draw": jax.random.uniform(key)})
    assert train(draw, steps=4).evaluation == train(draw, steps=8).evaluation


def test_what_prepares_the_batch_gets_no_gradient():
    """As if the batch came so: a gradient through the attack would be another one."""

    def attack(params, batch, key):
        return batch + params["w"] + 0.0 * jax.random.normal(key, batch.shape)

    def loss(params, batch):
        return jnp.sum(batch) + jnp.sum(params["w"] * 2.0), {}

    result = train(line(prepare=attack, loss=loss, optimizer=optax.sgd), steps=1, learning_rate=1.0)
    assert result.params["w"].tolist() == [-2.0, -2.0, -2.0]


def test_what_prepares_the_batch_draws_anew_at_each_step():
    def loss(params, batch):
        return params["b"] ** 2, {"seen": batch[0, 0]}

    task = line(prepare=lambda p, batch, key: jax.random.normal(key, batch.shape), loss=loss)
    assert len(set(train(task, steps=20).metrics["seen"].tolist())) == 20


def test_a_loss_that_is_not_finite_ends_the_run_as_failed(tmp_path: Path):
    task = line(data=lambda key, step: jnp.where(step == 6, jnp.nan, jax.random.normal(key, (8, 3))))
    with Run.create("line", runs_dir=tmp_path) as run:
        result = train(task, steps=1000, log_every=1, run=run, rollback=Rollback(times=0))
    assert result.ended == "failed"
    assert result.outcome.startswith(
        "the loss was not finite at step 6; a smaller learning rate, or a clip, may help; "
    )
    assert int(result.state.step) < 20
    assert Run.open(run.folder).state == "failed"
    assert math.isnan(run.columns()["loss"][6])


def test_an_exception_ends_the_run_as_failed(tmp_path: Path):
    def broken(params, batch):
        raise ZeroDivisionError("no such loss")

    run = Run.create("line", runs_dir=tmp_path)
    with pytest.raises(ZeroDivisionError):
        train(line(loss=broken), run=run)
    assert Run.open(run.folder).state == "failed"
    assert run.events()[-1]["outcome"] == "ZeroDivisionError: no such loss"


def test_the_loss_is_traced_once():
    traced = []

    def loss(params, batch):
        traced.append(1)
        return params["b"] ** 2, {}

    train(line(loss=loss), steps=50, steps_per_call=5)
    assert len(traced) == 1


def test_it_runs_in_another_thread_too():
    results = []
    thread = threading.Thread(target=lambda: results.append(train(steps=3)))
    thread.start()
    thread.join()
    assert results[0].ended == "finished"


def test_laps_tell_the_phases_and_the_fused_step(tmp_path: Path):
    task = line(prepare=lambda params, batch, key: batch)
    with Run.create("line", runs_dir=tmp_path) as run:
        result = train(task, steps=40, steps_per_call=2, laps_every=5, run=run)
    phases = {phase.path: phase for phase in result.times.phases.phases}
    assert list(phases) == ["data", "prepare", "forward", "backward", "update"]
    # Calls 0 to 3, then 5, 10 and 15; the first is kept apart.
    assert all(phase.count == 6 for phase in phases.values())
    assert all(phase.trace and phase.lower and phase.compile for phase in phases.values())
    step = result.times.phases.step
    parts = sum(phase.total for phase in phases.values()) + result.times.phases.unaccounted.total
    assert parts == pytest.approx(step.total, rel=1e-6)
    fused = result.times.fused
    assert fused.count == 6
    assert fused.compile
    assert fused.p50
    assert result.times.seconds_per_step == fused.p50 / 2
    laps = json.loads((run.folder / "laps.json").read_text())
    assert [phase["path"] for phase in laps["phases"]] == list(phases)
    assert laps["fused"]["steps_per_call"] == 2
    assert "fused, as it runs" in str(result.times)


def test_the_phases_are_timed_without_the_fused_call():
    times = train(steps=4000, steps_per_call=500, laps_every=1).times
    assert times.fused.p50
    assert times.phases.unaccounted.p50 is not None
    assert times.phases.unaccounted.p50 < times.fused.p50 / 2


def test_a_run_without_laps_writes_none(tmp_path: Path):
    with Run.create("line", runs_dir=tmp_path) as run:
        train(steps=3, run=run)
    assert run.laps is None
