import os
import signal
from pathlib import Path

import jax.numpy as jnp
import pytest

from lapwing.core import interrupts
from lapwing.journal import Run
from lapwing.train import FitConfig, fit
from tests.training import start_training

from .tasks import line


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGINT, "Ctrl-C"), pytest.param(signal.SIGTERM, "SIGTERM", marks=pytest.mark.slow)],
)
def test_a_training_that_is_interrupted_says_so_and_exits_with_130(tmp_path: Path, number: int, name: str):
    training, run = start_training(tmp_path, "adding", "--steps", "100000000", "--laps-every", "0")
    training.send_signal(number)
    out, err = training.communicate(timeout=30)
    assert (training.returncode, err) == (130, "")
    assert run.state == "stopped"
    steps = run.events()[-1]["steps"]
    assert f"stopped: by {name}, after {steps} steps in " in out
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


def test_the_second_time_it_is_at_once():
    with interrupts() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.reason == "Ctrl-C"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_afterwards_signals_are_as_before():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with interrupts():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
