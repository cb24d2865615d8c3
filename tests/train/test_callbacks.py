"""Callbacks look at a run, and change nothing about it."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.journal import Run
from lapwing.task import Callback
from lapwing.train import Checkpointing, Checkpoints, FitConfig, FitResult, Rollback, State, fit, fit_many
from tests.slow import some

from .tasks import line, same_bits

CONFIG = FitConfig(
    steps=20,
    learning_rate=0.1,
    laps_every=0,
    log_every=5,
    smooth=5,
    evaluate_every=8,
    checkpoint=Checkpointing(every=12),
)


def task(**changes):
    return line(evaluate=lambda params, key: {"w": params["w"][0]}, **changes)


class Watch(Callback):
    def __init__(self):
        self.seen = []

    def on_evaluation(self, event):
        self.seen.append(("evaluation", event.step, event.metrics["eval_w"], event.params["w"]))

    def on_checkpoint(self, event):
        self.seen.append(("checkpoint", event.step))

    def on_rollback(self, event):
        self.seen.append(("rollback", event.step, event.reason))

    def on_end(self, event):
        assert isinstance(event.result, FitResult)
        assert isinstance(event.state, State)
        self.seen.append(("end", event.step))
        return f"{len(self.seen)} events"


def test_what_a_callback_sees(tmp_path: Path, capsys):
    mine, tasks_own = Watch(), Watch()
    with Run.create("line", runs_dir=tmp_path) as run:
        fit(task(callbacks=[tasks_own]), CONFIG, run, callbacks=[mine])
    assert [seen[:2] for seen in mine.seen] == [
        ("evaluation", 8),
        ("checkpoint", 12),
        ("evaluation", 16),
        ("evaluation", 20),
        ("checkpoint", 20),
        ("end", 20),
    ]
    for kind, _, *values in mine.seen:
        if kind == "evaluation":
            assert isinstance(values[1], np.ndarray)
            assert values[0] == pytest.approx(values[1][0])
    assert len(tasks_own.seen) == len(mine.seen)
    assert "6 events\n\n6 events" in capsys.readouterr().out


def test_a_callback_changes_no_number():
    class Vandal(Callback):
        def on_evaluation(self, event):
            event.params["w"] = None
            event.metrics["eval_w"] = 1e9
            event.state.params["w"].delete()

    with_callback = fit(task(), CONFIG, callbacks=[Vandal()], quiet=True)
    without = fit(task(), CONFIG, quiet=True)
    assert same_bits(with_callback.state, without.state)
    assert with_callback.evaluation == without.evaluation


def test_what_is_kept_of_an_event_stays_alive():
    kept = []

    class Keep(Callback):
        def on_evaluation(self, event):
            kept.append(event.state)

    fit(task(), CONFIG, callbacks=[Keep()], quiet=True)
    assert [int(state.step) for state in kept] == [8, 16, 20]
    assert all(np.isfinite(jax.device_get(state.params["w"])).all() for state in kept)


def test_a_rollback_is_seen():
    watch = Watch()
    broken = task(data=lambda key, step: jnp.where(step == 12, jnp.nan, jax.random.normal(key, (8, 3))))
    config = dataclasses.replace(CONFIG, rollback=Rollback(times=1), evaluate_every=0)
    fit(broken, config, callbacks=[watch], quiet=True)
    assert ("rollback", 10, "the loss was not finite at step 12") in watch.seen


@pytest.mark.parametrize(
    ("method", "step"), some([("on_evaluation", 8), ("on_checkpoint", 12), ("on_end", 20)], 0)
)
def test_an_exception_names_the_callback_and_ends_the_run_as_failed_with_a_checkpoint(
    tmp_path: Path, capsys, method, step
):
    class Clumsy(Callback):
        pass

    def stumble(self, event):
        raise KeyError("accuracy")

    setattr(Clumsy, method, stumble)
    with Run.create("line", runs_dir=tmp_path) as run:
        result = fit(task(), CONFIG, run, callbacks=[Clumsy()], quiet=True)
    said = f"the callback Clumsy.{method} failed at step {step}: KeyError: 'accuracy'"
    assert result.ended == "failed"
    assert result.outcome.startswith(said)
    assert said in run.story
    assert "Traceback" in capsys.readouterr().err
    checkpoints = Checkpoints(run.folder / "checkpoints")
    newest = checkpoints.all()[-1]
    assert newest.step == step
    np.testing.assert_array_equal(checkpoints.arrays(newest)["params/w"], result.params["w"])
    with Run.reopen(run.folder) as again:
        resumed = fit(task(), CONFIG, again, quiet=True)
    assert same_bits(resumed.state, fit(task(), CONFIG, quiet=True).state)


@pytest.mark.slow
def test_each_of_many_runs_has_its_events(tmp_path: Path):
    ended = {}

    class Note(Callback):
        def on_end(self, event):
            ended[event.run.name] = event.step

    runs = [Run.create("line", runs_dir=tmp_path) for _ in range(2)]
    configs = [FitConfig(steps=6, laps_every=0, seed=seed) for seed in (0, 1)]
    fit_many(lambda _: task(), configs, runs, callbacks=[Note()])
    assert ended == {run.name: 6 for run in runs}


def test_a_picture_at_the_end(tmp_path: Path):
    class Draw(Callback):
        def on_end(self, event):
            event.run.add_picture(b"drawn", "loss.png", f"after {len(event.result.metrics['loss'])} steps")

    with Run.create("line", runs_dir=tmp_path) as run:
        fit(line(callbacks=[Draw()]), FitConfig(steps=3, laps_every=0), run, quiet=True)
    assert [path.name for path in run.pictures] == ["loss.png"]
    assert "after 3 steps" in run.story
