"""Runs side by side: each is what it would have been alone."""

import dataclasses
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.experiments import REGISTRY, adding
from lapwing.experiments import latent_thinker as thinker
from lapwing.journal import Run, RunWriter, run_folders
from lapwing.task import Rounds, TaskError, Turn
from lapwing.train import VECTORIZED, Checkpoints, ConfigError, FitConfig, Rollback, Stop, fit, fit_many
from lapwing.train._alike import alike

from . import killed
from .tasks import line, same_bits
from .test_resume import assert_same_run

ADDING = adding.Config(width=8, length=6, batch_size=16, steps=50, laps_every=0, log_every=10)
LINE = FitConfig(learning_rate=0.1, laps_every=0, log_every=5, steps=20)


def with_seeds(config, count: int, **options):
    return [dataclasses.replace(config, seed=seed, **options) for seed in range(count)]


def folders(tmp_path: Path, count: int) -> list[RunWriter]:
    return [Run.create("many", runs_dir=tmp_path) for _ in range(count)]


def side_by_side(task, configs, runs=None, **options):
    return fit_many(lambda _: task, configs, runs or [None] * len(configs), **options)


def assert_close(ours, theirs, rtol=1e-5) -> None:
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=rtol, atol=1e-7, err_msg=name)


def test_each_run_gets_the_numbers_that_it_would_have_got_alone(tmp_path: Path):
    configs = [
        dataclasses.replace(ADDING, seed=seed, learning_rate=rate, clip=clip, weight_decay=decay)
        for seed, rate, clip, decay in [(0, 5e-3, 1.0, 0.0), (1, 2e-2, 0.1, 0.1)]
    ]
    runs = folders(tmp_path, 2)
    together = fit_many(adding.build, configs, runs)
    for result, config, run in zip(together, configs, runs, strict=True):
        alone = fit(adding.build(config), config, quiet=True)
        assert (result.ended, len(result.metrics["loss"])) == ("finished", 50)
        np.testing.assert_allclose(result.metrics["loss"], alone.metrics["loss"], rtol=1e-5)
        assert_close(result.metrics, alone.metrics, rtol=1e-4)
        assert_close(result.evaluation, alone.evaluation)
        written = Run.open(run.folder)
        assert written.state == "finished"
        np.testing.assert_array_equal(written.curve("loss")[1].astype(np.float32), result.metrics["loss"])
        assert Checkpoints(run.folder / "checkpoints").all()[-1].step == 50


@pytest.mark.slow
def test_each_run_has_a_memory_of_its_own():
    task = line(
        memory=lambda key: jax.random.normal(key, (3,)),
        data=lambda key, step, memory: memory + jax.random.normal(key, (8, 3)),
        remember=lambda memory, batch, metrics: 0.9 * memory + metrics["loss"],
    )
    configs = with_seeds(LINE, 2)
    for result, config in zip(side_by_side(task, configs), configs, strict=True):
        alone = fit(task, config, quiet=True)
        assert_close(result.metrics, alone.metrics)
        np.testing.assert_allclose(result.state.memory, alone.state.memory, rtol=1e-5)


@pytest.mark.slow
def test_a_curriculum_moves_in_each_run_by_itself():
    size = dataclasses.replace(thinker.Config().model, width=8, heads=2, latents=2, steps=2)
    config = thinker.Config(
        task="copy", length=4, base=4, model=size, batch_size=8, evaluated=8, steps=12, laps_every=0
    )
    config = dataclasses.replace(config, curriculum=dataclasses.replace(config.curriculum, start=2))
    configs = with_seeds(config, 2)
    for result, one in zip(fit_many(thinker.build, configs, [None, None]), configs, strict=True):
        assert_close(result.metrics, fit(thinker.build(one), one, quiet=True).metrics, rtol=1e-4)


def test_a_command_reaches_one_run_only(tmp_path: Path):
    runs = folders(tmp_path, 3)
    Run.open(runs[1].folder).post("set", lr=0.01)
    results = side_by_side(line(), with_seeds(LINE, 3), runs)
    rates = [result.metrics["effective_learning_rate"] for result in results]
    np.testing.assert_allclose(rates[1], [0.1] + 19 * [0.01])
    np.testing.assert_allclose([rates[0], rates[2]], 0.1)
    assert "applied" in runs[1].story
    assert "applied" not in runs[0].story


@pytest.mark.slow
def test_a_run_that_is_paused_waits_alone(tmp_path: Path):
    runs = folders(tmp_path, 3)
    reader = Run.open(runs[0].folder)
    reader.post("pause")
    others_ended = threading.Event()

    def let_go_on():
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and Run.open(runs[2].folder).state != "finished":
            time.sleep(0.01)
        if reader.state == "paused":
            others_ended.set()
        reader.post("go on")

    helper = threading.Thread(target=let_go_on)
    helper.start()
    results = side_by_side(line(), with_seeds(LINE, 3), runs)
    helper.join()
    assert others_ended.is_set()
    never_paused = side_by_side(line(), with_seeds(LINE, 3))
    assert same_bits([r.metrics for r in results], [r.metrics for r in never_paused])
    assert same_bits([r.state for r in results], [r.state for r in never_paused])


@pytest.mark.slow
def test_one_that_goes_back_ends_later_than_the_others(tmp_path: Path):
    """Its last call has another number of steps to make than those of the others at that time."""
    config = FitConfig(
        learning_rate=0.1,
        laps_every=0,
        steps=45,
        steps_per_call=10,
        log_every=10,
        rollback=Rollback(times=100),
    )

    def batch(key, step):
        accident = (step == 22) & (jax.random.uniform(key) < 0.3)
        return jnp.where(accident, jnp.nan, jax.random.normal(key, (8, 3)))

    accident = line(data=batch)
    configs = with_seeds(config, 6)
    results = side_by_side(accident, configs, folders(tmp_path, 6))
    by_rollbacks = {
        result.rollbacks: (result, config) for result, config in zip(results, configs, strict=True)
    }
    assert 0 in by_rollbacks
    assert len(by_rollbacks) > 1
    for rollbacks, (result, one) in by_rollbacks.items():
        alone = fit(accident, one, quiet=True)
        assert alone.rollbacks == rollbacks
        assert_close(result.metrics, alone.metrics)


def test_one_that_ends_early_leaves_the_others_alone_and_nothing_is_compiled_again(tmp_path: Path):
    traced = []

    def counted(params, batch):
        traced.append(1)
        return plain.loss(params, batch)

    plain = line()
    task = dataclasses.replace(plain, loss=counted)
    rates = [dataclasses.replace(LINE, steps=60, learning_rate=rate) for rate in (0.3, 1e-4)]
    whole = side_by_side(task, rates)
    times, traced = len(traced), []
    results = side_by_side(
        task, [dataclasses.replace(rate, stop=Stop(metric="distance", below=0.3)) for rate in rates]
    )
    assert len(traced) == times
    assert len(results[0].metrics["loss"]) < len(results[1].metrics["loss"]) == 60
    assert same_bits(results[1].state.params, whole[1].state.params)


@pytest.mark.slow
def test_phases_are_those_of_all_runs_together(tmp_path: Path):
    runs = folders(tmp_path, 2)
    results = side_by_side(line(), with_seeds(LINE, 2, laps_every=5), runs)
    assert [phase.path for phase in results[0].times.phases.phases] == [
        "data",
        "forward",
        "backward",
        "update",
    ]
    assert [run.laps["fused"]["count"] for run in runs] == 2 * [results[0].times.fused.count]


@pytest.mark.slow
def test_runs_at_different_steps_go_on_together(tmp_path: Path):
    configs = with_seeds(LINE, 2)
    whole = side_by_side(line(), configs)
    runs = folders(tmp_path, 2)
    Run.open(runs[0].folder).post("stop")
    first = side_by_side(line(), configs, runs)
    assert [result.ended for result in first] == ["stopped", "finished"]
    again = [Run.reopen(run.folder) for run in runs]
    results = side_by_side(line(), configs, again)
    assert same_bits([r.state for r in results], [r.state for r in whole])
    assert same_bits(results[0].metrics, whole[0].metrics)


def start_killed(runs: Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, killed.__file__, str(runs), "--steps", "3000", "--members", "3"])


@pytest.mark.slow
def test_a_killed_population_goes_on_bit_by_bit(tmp_path: Path):
    undisturbed = start_killed(tmp_path / "whole")
    process = start_killed(tmp_path / "killed")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not checkpoints_in(tmp_path / "killed"):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stood = [run.state for run in map(Run.open, run_folders(tmp_path / "killed"))]
    assert stood == 3 * ["lost"]
    assert start_killed(tmp_path / "killed").wait(120) == 0
    assert undisturbed.wait(120) == 0
    pairs = [[Run.open(f) for f in run_folders(tmp_path / name)] for name in ("whole", "killed")]
    for a, b in zip(*(sorted(runs, key=lambda run: run.experiment) for runs in pairs), strict=True):
        assert "resumed from the checkpoint" in b.story
        assert_same_run(a, b)


def checkpoints_in(runs: Path) -> bool:
    found = run_folders(runs) if runs.exists() else []
    return len(found) == 3 and all(any((folder / "checkpoints").glob("[!.]*")) for folder in found)


@pytest.mark.parametrize(
    "name",
    [
        "adding",
        pytest.param("adversarial", marks=pytest.mark.slow),
        pytest.param("latent-thinker", marks=pytest.mark.slow),
        pytest.param("superfluid", marks=pytest.mark.slow),
        pytest.param("dmm-lite", marks=pytest.mark.slow),
        pytest.param("dmm-feedforward", marks=pytest.mark.slow),
    ],
)
def test_the_experiments_have_nothing_built_in_that_may_differ(name: str):
    experiment = REGISTRY.load(name)
    config = experiment.Config()
    other: Any = dict(zip(VECTORIZED, (config.seed + 1, 2 * config.learning_rate, 0.5, 0.125), strict=True))
    assert alike(experiment.build(config), experiment.build(dataclasses.replace(config, **other)), config)


def with_built_in(config: FitConfig):
    goal = np.full(3, config.learning_rate)
    return line(evaluate=lambda params, key: {"far": jnp.sum(params["w"] - goal)})


def with_another_way(config: FitConfig):
    turn = jnp.sin if config.learning_rate < 0.15 else jnp.cos
    return line(data=lambda key, step: turn(jax.random.normal(key, (8, 3))))


@pytest.mark.parametrize(
    ("build", "configs", "message"),
    [
        (
            with_another_way,
            [LINE, dataclasses.replace(LINE, learning_rate=0.2)],
            "learning_rate is built into the task",
        ),
        (
            lambda _: line(),
            [LINE, dataclasses.replace(LINE, stop=Stop(below=0.5))],
            "may differ in seed, learning_rate, clip, weight_decay, but stop.below is -inf in one and 0.5 in another; "
            "train those separately",
        ),
        (
            with_built_in,
            [LINE, dataclasses.replace(LINE, learning_rate=0.2)],
            "learning_rate is built into the task as a constant, so runs that differ in it cannot share",
        ),
        (
            lambda _: line(rounds=Rounds(5, lambda params, optimizer: Turn(params, optimizer, "", {}))),
            with_seeds(LINE, 2),
            "a task with rounds is trained run by run, with fit",
        ),
        (lambda _: line(), [], "each config needs a run, or None, but there are 0 configs and 2 runs"),
    ],
)
def test_what_cannot_be_trained_side_by_side_is_refused(build, configs, message):
    with pytest.raises((ConfigError, TaskError), match=message):
        fit_many(build, configs, [None, None])
