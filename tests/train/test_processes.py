"""Two real processes on this host train together, and one of them is killed."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from lapwing.experiments import adding
from lapwing.journal import Run, run_folders
from lapwing.train import Checkpoints, ConfigError, fit, join_processes

SMALL = {"width": 8, "length": 6, "batch-size": 16, "laps-every": 0, "log-every": 10, "checkpoint.every": 50}
QUICKLY = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


def started(*words: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "lapwing", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=QUICKLY)


@contextlib.contextmanager
def two(*words: str) -> Iterator[list[subprocess.Popen]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    crew = ["--coordinator", address, "--processes", "2", "--process-id"]
    processes = [started(*words, *crew, str(number)) for number in range(2)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def finished(*words: str) -> None:
    with two(*words) as processes:
        for process in processes:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors


def train(runs: Path, steps: int) -> list[str]:
    options = {**SMALL, "steps": steps, "runs": runs}
    return ["train", "adding", "--no-check", *(f"--{name}={value}" for name, value in options.items())]


def wait_for_checkpoint(runs: Path) -> Run:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if any(runs.glob("*/checkpoints/[!.]*")):
            return Run.open(run_folders(runs)[0])
        time.sleep(0.01)
    raise AssertionError("no checkpoint was written")


def killed(runs: Path, number: int) -> tuple[Run, subprocess.Popen, str]:
    """Two processes, one of which is killed after the first checkpoint; the run, the other one and its last words."""
    with two(*train(runs, 10**7)) as processes:
        run = wait_for_checkpoint(runs)
        processes[number].send_signal(signal.SIGKILL)
        since = time.monotonic()
        other = processes[1 - number]
        _, errors = other.communicate(timeout=60)
        assert time.monotonic() - since < 30
    return run, other, errors


@pytest.mark.slow
@pytest.mark.parametrize(("number", "state"), [(0, "lost"), (1, "failed")])
def test_one_is_killed_and_the_other_says_so(tmp_path: Path, number: int, state: str):
    run, other, errors = killed(tmp_path, number)
    assert other.returncode == 1, errors
    assert errors.startswith("lapwing: another process of this run has ended, or cannot be reached (")
    assert errors.endswith("they continue from the newest checkpoint\n")
    assert errors.count("\n") == 1
    assert run.state == state
    steps = Checkpoints(run.folder / "checkpoints").all()[0].step
    made, losses = run.curve("loss")
    np.testing.assert_array_equal(made, range(len(made)))
    config = adding.Config(width=8, length=6, batch_size=16, laps_every=0, steps=steps)
    alone = fit(adding.build(config), config, quiet=True)
    np.testing.assert_allclose(losses[:steps], alone.metrics["loss"], rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_both_go_on_from_the_checkpoint_with_the_numbers_of_an_undisturbed_run(tmp_path: Path, number: int):
    run, other, _ = killed(tmp_path / "killed", number)
    assert other.returncode != 0
    steps = Checkpoints(run.folder / "checkpoints").all()[-1].step + 100
    finished("resume", str(run.folder), "--steps", str(steps), "--allow-change")
    assert run.state == "finished"
    assert f"resumed from the checkpoint of step {steps - 100}" in run.story
    np.testing.assert_array_equal(run.curve("loss")[0], range(steps))
    finished(*train(tmp_path / "whole", steps))
    whole = Run.open(run_folders(tmp_path / "whole")[0])
    for name in ("loss", "gradient_norm", "eval_loss"):
        np.testing.assert_array_equal(run.curve(name), whole.curve(name))


@pytest.mark.parametrize("number", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_one_is_preempted_and_both_end_with_a_checkpoint(tmp_path: Path, number: int):
    with two(*train(tmp_path, 10**7)) as processes:
        run = wait_for_checkpoint(tmp_path)
        processes[number].send_signal(signal.SIGTERM)
        outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [143, 143], outputs
    assert [errors for _, errors in outputs] == ["", ""]
    assert run.state == "preempted"
    end = run.events()[-1]
    assert end["outcome"].startswith(f"by SIGTERM{', sent to process 1' if number else ''}, after ")
    assert Checkpoints(run.folder / "checkpoints").all()[-1].step == end["steps"]


@pytest.mark.slow
def test_a_command_reaches_both(tmp_path: Path):
    with two(*train(tmp_path, 10**7)) as processes:
        run = wait_for_checkpoint(tmp_path)
        for command, arguments in [
            ("set", {"lr": 0.001}),
            ("pause", {}),
            ("go on", {}),
            ("rollback", {"to": 3}),
            ("rollback", {"to": "best"}),
            ("stop", {}),
        ]:
            answer = run.answer(run.post(command, **arguments), timeout_s=60)
            assert answer is not None
            assert answer["event"] == ("refused" if arguments == {"to": 3} else "applied"), answer
        for process in processes:
            process.communicate(timeout=60)
            assert process.returncode == 130


def test_joining_too_late():
    jax.devices()
    with pytest.raises(
        ConfigError, match=r"cannot join the other processes at 'here:1': jax\.distributed\.initialize"
    ):
        join_processes("here:1", 2, 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--processes", "2"], "--processes and --process-id need --coordinator HOST:PORT"),
        (["--coordinator", "here:1"], "--coordinator here:1 needs --processes and --process-id too"),
    ],
)
def test_options_that_make_no_sense(words, message, capsys, tmp_path: Path):
    from lapwing.cli import main

    assert main([*train(tmp_path, 10), *words]) == 2
    assert message in capsys.readouterr().err
