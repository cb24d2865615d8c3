import dataclasses
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.journal import LockedError, Run, run_folders
from lapwing.train import Checkpoints, ConfigError, FitConfig, Schedule, fit

from . import killed
from .tasks import line, same_bits

OPTIONS = {"learning_rate": 0.1, "laps_every": 0, "log_every": 5}


def made(tmp_path: Path, task=None, **options):
    with Run.create("line", runs_dir=tmp_path) as run:
        return run, fit(task or line(), FitConfig(**OPTIONS, **options), run, quiet=True)


def gone_on(run: Run, task=None, allow_change=False, **options):
    with Run.reopen(run.folder) as again:
        return again, fit(
            task or line(), FitConfig(**OPTIONS, **options), again, quiet=True, allow_change=allow_change
        )


def columns_of(run: Run) -> dict[str, np.ndarray]:
    return {name: column for name, column in Run.open(run.folder).columns().items() if name != "time"}


def assert_same_run(a: Run, b: Run) -> None:
    ours, theirs = columns_of(a), columns_of(b)
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    ends = [Checkpoints(run.folder / "checkpoints") for run in (a, b)]
    last = [checkpoints.arrays(checkpoints.all()[-1]) for checkpoints in ends]
    assert same_bits(*last)


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(tmp_path: Path):
    """Stopped by its budget of steps, between two windows, evaluations and looks at the plateau."""
    options = {
        "evaluate_every": 4,
        "schedule": Schedule("cosine", warmup=3),
        "weight_decay": 0.01,
        "clip": 0.5,
    }
    task = line(evaluate=lambda params, key: {"w": params["w"][0]})
    whole, result = made(tmp_path / "whole", task, steps=40, **options)
    with Run.create("line", runs_dir=tmp_path / "parts") as run:
        Run.open(run.folder).post("stop")
        stopped = fit(task, FitConfig(**OPTIONS, steps=40, **options), run, quiet=True)
    assert stopped.ended == "stopped"
    assert 0 < int(stopped.state.step) < 40
    again, resumed = gone_on(run, task, steps=40, **options)
    assert_same_run(whole, again)
    assert same_bits(result.state, resumed.state)
    assert same_bits(result.metrics, resumed.metrics)
    assert f"resumed from the checkpoint of step {int(stopped.state.step)}" in again.story


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path: Path):
    whole, _ = made(tmp_path / "whole", steps=10)
    with Run.create("line", runs_dir=tmp_path / "killed") as run:
        run.log({"step": 0, "loss": 7.0}, {"step": 1, "loss": 8.0})
    again, _ = gone_on(run, steps=10)
    assert_same_run(whole, again)


def test_a_finished_run_can_go_further(tmp_path: Path):
    run, _ = made(tmp_path, steps=10)
    again, result = gone_on(run, steps=15, allow_change=True)
    assert int(result.state.step) == 15
    assert len(result.metrics["loss"]) == 15
    assert "the config changed: steps 10 → 15" in again.story


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_run_that_another_process_writes_is_refused_and_left_alone(tmp_path: Path):
    run, _ = made(tmp_path, steps=10)
    with Run.reopen(run.folder):
        before = files_of(run.folder)
        with pytest.raises(LockedError, match="is being written by process"):
            gone_on(run, steps=10)
        assert files_of(run.folder) == before


def test_a_start_that_is_refused_leaves_no_run(tmp_path: Path):
    with pytest.raises(ConfigError):
        fit(
            line(),
            FitConfig(**OPTIONS, steps=10, best="eval_nothing"),
            Run.create("line", runs_dir=tmp_path),
            quiet=True,
        )
    assert list(tmp_path.iterdir()) == []


def test_a_config_that_changed_is_refused_unless_allowed(tmp_path: Path):
    run, _ = made(tmp_path, steps=10)
    before = files_of(run.folder)
    with pytest.raises(ConfigError) as error:
        gone_on(run, steps=12, clip=0.5)
    assert files_of(run.folder) == before, "a refusal changed the record"
    assert str(error.value) == (
        "the config is not the one of the checkpoint: steps 10 → 12, clip inf → 0.5; to resume with the new one, "
        "give --allow-change (in Python: allow_change=True)"
    )
    _, result = gone_on(run, steps=12, clip=0.5, allow_change=True)
    assert result.metrics["clipped_norm"][10:].max() <= 0.5 * (1 + 1e-6)
    assert float(result.state.controls["clip"]) == 0.5


def test_what_changes_no_number_may_change(tmp_path: Path):
    run, _ = made(tmp_path, steps=10)
    with Run.reopen(run.folder) as again:
        config = dataclasses.replace(FitConfig(**OPTIONS, steps=10), laps_every=1)
        assert fit(line(), config, again, quiet=True).ended == "finished"


def test_what_was_set_stays_set(tmp_path: Path):
    with Run.create("line", runs_dir=tmp_path) as run:
        reader = Run.open(run.folder)
        reader.post("set", lr=0.01, clip=0.25)
        reader.post("stop")
        fit(line(), FitConfig(**OPTIONS, steps=40), run, quiet=True)
    _, result = gone_on(run, steps=40)
    assert float(result.state.controls["clip"]) == 0.25
    np.testing.assert_allclose(result.metrics["effective_learning_rate"][-1], 0.01)


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path: Path, capsys):
    with Run.create("line", runs_dir=tmp_path) as run:
        reader = Run.open(run.folder)
        reader.post("checkpoint")
        fit(line(), FitConfig(**OPTIONS, steps=40), run, quiet=True)
    newest = Checkpoints(run.folder / "checkpoints").all()[-1]
    assert newest.step == 40
    newest.path.write_bytes(newest.path.read_bytes()[:-1])
    again, _ = gone_on(run, steps=40)
    assert newest.path.name in capsys.readouterr().err
    assert newest.path.name in again.story
    whole, _ = made(tmp_path / "whole", steps=40)
    assert_same_run(whole, again)


@pytest.mark.slow
def test_going_back_is_resumed_too(tmp_path: Path):
    """A run that went back to its best, is stopped, and goes on: it must know what it went back to, and how often."""

    def accidents(key, step):
        return jnp.where(jax.random.uniform(key) < 0.01, jnp.nan, killed.batch(key, step))

    def evaluate(params, key):
        jax.debug.callback(at_evaluation)
        return {}

    task = dataclasses.replace(killed.TASK, data=accidents, evaluate=evaluate)
    config = dataclasses.replace(killed.CONFIG, steps=400, evaluate_every=330)
    at_evaluation = list
    with Run.create("line", runs_dir=tmp_path / "whole") as whole:
        expected = fit(task, config, whole, quiet=True)
    with Run.create("line", runs_dir=tmp_path / "parts") as parts:
        at_evaluation = lambda: Run.open(parts.folder).post("stop")  # noqa: E731
        stopped = fit(task, config, parts, quiet=True)
    assert stopped.ended == "stopped"
    assert 0 < stopped.rollbacks < expected.rollbacks
    at_evaluation = list
    with Run.reopen(parts.folder) as again:
        result = fit(task, config, again, quiet=True)
    assert result.rollbacks == expected.rollbacks
    assert_same_run(whole, again)


@pytest.mark.slow  # In every run a whole model is killed once: tests/test_examples_own.py.
def test_killed_once(tmp_path: Path):
    _kill_and_compare(tmp_path, kills=1, seed=1, steps=8000)


@pytest.mark.slow
def test_killed_twenty_five_times(tmp_path: Path):
    _kill_and_compare(tmp_path, kills=25, seed=2, steps=30_000)


def _kill_and_compare(tmp_path: Path, kills: int, seed: int, steps: int) -> None:
    moments = random.Random(seed)
    command = [sys.executable, killed.__file__, "--steps", str(steps)]
    undisturbed = subprocess.Popen([*command, str(tmp_path / "whole")])
    for _ in range(kills):
        _kill_at_random(subprocess.Popen([*command, str(tmp_path / "killed")]), tmp_path / "killed", moments)
    subprocess.run([*command, str(tmp_path / "killed")], check=True, timeout=300)
    assert undisturbed.wait(300) == 0
    whole, again = (Run.open(run_folders(tmp_path / name)[0]) for name in ("whole", "killed"))
    restarts = [event for event in again.events() if event["event"] == "restarted"]
    assert len(restarts) == kills
    assert any(event["event"] == "rollback" for event in whole.events())
    assert_same_run(whole, again)


def _kill_at_random(process: subprocess.Popen, runs: Path, moments: random.Random) -> None:
    """Not before it has begun to make steps, and then at once or a little later."""
    size = _size(runs)
    deadline = time.monotonic() + 120
    while _size(runs) <= size:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(moments.uniform(0, 0.1))
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"


def _size(runs: Path) -> int:
    return sum(path.stat().st_size for path in runs.glob("*/metrics.jsonl"))
