import os
import signal
import time
from pathlib import Path

import jax.numpy as jnp
import pytest

from lapwing.core import Preempted, interrupts, raised_interrupts
from lapwing.journal import LostLockError, Run
from lapwing.task import Callback
from lapwing.train import FitConfig, fit
from tests.training import start_training

from .tasks import line


@pytest.mark.parametrize(
    ("number", "name", "state", "status"),
    [
        pytest.param(signal.SIGINT, "Ctrl-C", "stopped", 130, marks=pytest.mark.slow),
        (signal.SIGTERM, "SIGTERM", "preempted", 143),
    ],
)
def test_a_training_that_is_interrupted_says_so(
    tmp_path: Path, number: int, name: str, state: str, status: int
):
    training, run = start_training(tmp_path, "adding", "--steps", "100000000", "--laps-every", "0")
    training.send_signal(number)
    out, err = training.communicate(timeout=120)
    assert (training.returncode, err) == (status, "")
    assert run.state == state
    steps = run.events()[-1]["steps"]
    assert f"{state}: by {name}, after {steps} steps in " in out
    trained = [
        step for step, loss in zip(run.columns()["step"], run.columns()["loss"], strict=True) if loss == loss
    ]
    assert trained == list(range(steps))


def test_an_interrupt_before_the_first_step(tmp_path: Path):
    def init(key):
        os.kill(os.getpid(), signal.SIGINT)
        return {"w": jnp.zeros(3), "b": jnp.float32(0)}

    run = Run.create("line", runs_dir=tmp_path)
    result = fit(line(init=init, evaluate=lambda params, key: {}), FitConfig(), run)
    assert result.ended == "stopped"
    assert result.outcome.startswith("by Ctrl-C, after 0 steps in ")
    assert run.state == "stopped"


def test_a_training_whose_lock_is_deleted_stops_and_writes_nothing_more(tmp_path: Path):
    class Delete(Callback):
        def on_evaluation(self, event):
            if event.step == 20:
                (run.folder / "lock").unlink()
                time.sleep(0.03)

    run = Run.create("line", runs_dir=tmp_path)
    config = FitConfig(steps=1000, log_every=10, evaluate_every=10, laps_every=0)
    task = line(evaluate=lambda params, key: {"zero": 0 * params["b"]})
    with pytest.raises(LostLockError, match="was deleted or replaced while this process was writing"):
        fit(task, config, run, callbacks=[Delete()], quiet=True)
    assert run.latest()["step"] <= 20
    assert "failed" not in [event["event"] for event in run.events()]
    again = fit(task, config, Run.reopen(run.folder), quiet=True)
    assert again.ended == "finished"
    assert run.curve("loss")[0].tolist() == list(range(1000))


def test_the_second_time_it_is_at_once():
    with interrupts() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.reason == "Ctrl-C"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_scheduler_may_say_it_twice():
    with interrupts() as interrupt:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert interrupt.reason == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_where_interrupts_are_raised_sigterm_is_raised_once():
    with raised_interrupts():
        with pytest.raises(Preempted):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_loop_of_ones_own_is_preempted_too(tmp_path: Path):
    with Run.create("mine", runs_dir=tmp_path) as run:
        for step in run.steps(10):
            run.log(loss=1.0)
            if step == 3:
                os.kill(os.getpid(), signal.SIGTERM)
    assert run.state == "preempted"
    assert run.columns()["step"].tolist() == [0, 1, 2, 3]
    again = Run.reopen(run.folder)
    again.log(step=4, loss=1.0)
    with pytest.raises(Preempted), raised_interrupts(), again:
        os.kill(os.getpid(), signal.SIGTERM)
    assert run.state == "preempted"


def test_afterwards_signals_are_as_before():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with interrupts():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
