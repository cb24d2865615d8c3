import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lapwing.journal import Run
from lapwing.train import FitConfig, Rollback, Watch, fit

from .tasks import line, same_bits

NO_REPLAY = Watch(off=("not_finite",))  # It traces the loss again, and may make steps again.


def train(task, run=None, **options):
    return fit(
        task, FitConfig(**{"laps_every": 0, "learning_rate": 0.1, "log_every": 5, **options}), run, quiet=True
    )


def accident(probability: float):
    """Data that are now and then not finite, by chance: other data, another chance."""

    def batch(key, step):
        data = jax.random.normal(key, (8, 3))
        return jnp.where(jax.random.uniform(key) < probability, jnp.nan, data)

    return line(data=batch)


def test_a_loss_that_is_not_finite_goes_back_to_the_best(tmp_path: Path):
    with Run.create("line", runs_dir=tmp_path) as run:
        result = train(accident(0.03), run, steps=60, rollback=Rollback(times=10, cut=0.5))
    assert result.ended == "finished"
    told = [event for event in run.events() if event["event"] == "rollback"]
    assert len(told) == result.rollbacks > 0
    assert all(event["to"] <= event["step"] for event in told)
    assert told[0]["reason"].startswith("the loss was not finite at step ")
    assert told[-1]["learning_rate"] == np.float32(0.1 * 0.5**result.rollbacks)
    assert f"{result.rollbacks} rollbacks" in result.outcome
    # What was undone is in the file, but no longer in the run.
    assert np.isfinite(result.metrics["loss"]).all()
    columns = run.columns()
    trained = ~np.isnan(columns["effective_learning_rate"])
    assert columns["step"][trained].tolist() == list(range(60))
    np.testing.assert_array_equal(columns["loss"][trained].astype(np.float32), result.metrics["loss"])
    assert "rolled back from step" in run.story


def test_after_it_the_optimizer_is_that_of_the_best_and_the_data_are_others():
    """The first 20 steps are sound, the 21st is not: what follows must be as if started from the 20th, but with other
    data."""
    seen = []

    def batch(key, step):
        data = jax.random.normal(key, (8, 3))
        jax.debug.callback(lambda at, first: seen.append((int(at), float(first))), step, data[0, 0])
        return jnp.where((step == 22) & (jax.random.uniform(key) < 2.0), jnp.nan, data)

    task = line(data=batch)
    best = train(task, steps=20)
    seen.clear()
    result = train(task, steps=1000, rollback=Rollback(times=1), watch=NO_REPLAY)
    assert result.ended == "failed"
    assert result.outcome.startswith("the loss was not finite at step 22 after 1 rollbacks; ")
    first_try, second_try = ([data for at, data in seen if at == step] for step in (20, 21))
    assert len(first_try) == len(set(first_try)) == 2
    assert len(second_try) == len(set(second_try)) == 2
    assert len(result.metrics["loss"]) == 23
    assert math.isnan(result.metrics["loss"][22])
    assert int(best.state.optimizer.task[0].count) == 20


def test_a_loss_that_runs_away_goes_back(tmp_path: Path):
    """A rate that is far too high for plain gradient descent; each time it is halved, until it is not."""
    with Run.create("line", runs_dir=tmp_path) as run:
        result = train(
            line(optimizer=optax.sgd),
            run,
            learning_rate=2.0,
            steps=100,
            rollback=Rollback(times=8, factor=4.0, patience=2),
        )
    assert result.ended == "finished"
    assert 0 < result.rollbacks < 8
    assert result.metrics["loss"][-1] < 0.01
    assert "times its best" in run.story


def test_updates_that_are_not_finite_are_left_out_counted_and_shown(tmp_path: Path):
    """The loss is finite and its gradient is not, as sqrt at zero makes it."""

    def loss(params, batch):
        hidden = jnp.where(batch[0, 0] > 1.0, 0.0, 1.0)
        return jnp.mean((batch @ (params["w"] - 1.0)) ** 2) + jnp.sqrt(hidden * params["b"] ** 2), {}

    with Run.create("line", runs_dir=tmp_path) as run:
        result = train(line(loss=loss), run, steps=60, rollback=Rollback(times=0))
    left_out = ~np.isfinite(result.metrics["gradient_norm"])
    assert result.ended == "finished"
    assert result.skipped == left_out.sum() > 0
    assert f"{result.skipped} updates skipped as not finite" in result.outcome
    assert int(result.state.optimizer.task[0].count) == 60 - result.skipped
    assert np.isfinite(result.params["w"]).all()
    column = run.columns()["skipped"]
    np.testing.assert_array_equal(
        np.nan_to_num(column[~np.isnan(run.columns()["effective_learning_rate"])]), left_out
    )


def test_a_gradient_that_is_never_finite_fails(tmp_path: Path):
    task = line(loss=lambda params, batch: (jnp.sqrt(0.0 * params["b"]), {}))
    result = train(task, steps=1000, rollback=Rollback(times=2, patience=10))
    assert result.ended == "failed"
    assert result.outcome.startswith("no update was finite for 10 steps at step 14 after 2 rollbacks")


def test_going_back_does_not_compile_again():
    traced = []

    def loss(params, batch):
        traced.append(1)
        return jnp.mean((batch @ (params["w"] - 1.0)) ** 2), {}

    task = accident(0.05)
    result = train(line(loss=loss, data=task.data), steps=60, rollback=Rollback(times=50), watch=NO_REPLAY)
    assert result.rollbacks > 1
    assert len(traced) == 1


def test_a_run_without_accidents_is_not_touched_by_the_rules():
    rules = Rollback(times=3, factor=50.0, spike=1000.0)
    assert same_bits(train(line(), steps=50).state, train(line(), steps=50, rollback=rules).state)
