"""The three experiments with dataflow matrix machines, run as a person runs them."""

import dataclasses
import signal
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

from lapwing import dmm, trees
from lapwing.cli import main
from lapwing.dmm import MachineError
from lapwing.experiments import dmm_feedforward, dmm_lite, superfluid
from lapwing.experiments._dmm import optimizer_of
from lapwing.journal import Run, find_run
from lapwing.task import CallbackEvent, adam_as_published
from lapwing.train import ConfigError, Rollback, fit, fit_many


def test_lite_prints_the_published_losses_and_ours(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert (
        main(
            ["train", "dmm-lite", "--start", "published", "--steps", "16", "--laps-every", "0", "--no-check"]
        )
        == 0
    )
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    assert [row[0] for row in rows] == [str(step) for step in range(1, 17)]
    for _, data_loss, theirs, regularisation, theirs_too in rows:
        assert float(data_loss) == pytest.approx(float(theirs), rel=1e-6)
        assert float(regularisation) == pytest.approx(float(theirs_too), rel=1e-6)
    run = Run.open(find_run("latest"))
    machine = dmm.Machine.from_json((run.folder / "machine.json").read_text())
    assert len(machine.links()) == 851
    assert (run.folder / "answers.png").stat().st_size > 1000


@pytest.mark.slow
def test_lite_trains_by_default(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "dmm-lite", "--steps", "300", "--laps-every", "0"]) == 0
    assert "300" in capsys.readouterr().out
    run = Run.open(find_run("latest"))
    (_, data_loss), (_, loss) = run.curve("data_loss"), run.curve("loss")
    assert 400 < data_loss[0] < 480
    assert data_loss[-1] < 120
    assert max(loss) == loss[0]
    assert not [event for event in run.events() if event["event"] == "rollback"]


@pytest.mark.slow
def test_lite_from_a_random_start():
    config = dmm_lite.Config()
    task = dmm_lite.build(dataclasses.replace(config, cycles=12))
    params = task.init(jax.random.key(0))
    assert params.shape == (20308,)
    assert np.std(params) == pytest.approx(config.spread, rel=0.2)
    assert not task.expected_findings


@pytest.mark.slow
def test_lite_trains_from_every_start():
    config = dmm_lite.Config(laps_every=0, rollback=Rollback(times=0))
    configs = [dataclasses.replace(config, seed=seed) for seed in range(8)]
    for result in fit_many(dmm_lite.build, configs, [None] * 8):
        assert result.metrics["data_loss"][-1] < 80
        assert result.metrics["loss"][-1] < 110


def test_lite_starts_from_one_kind_of_weights():
    message = r"start published and matrix w.json both give the weights; leave out one of them"
    with pytest.raises(ConfigError, match=message):
        dmm_lite.Config(start="published", matrix="w.json")
    with pytest.raises(ConfigError, match=r"spread should be a positive number, but is 0"):
        dmm_lite.Config(spread=0.0)


@pytest.mark.parametrize("experiment", [dmm_lite, dmm_feedforward])
def test_a_matrix_that_cannot_be_read(experiment, tmp_path: Path):
    with pytest.raises(MachineError, match=r"a machine in the file 'nofile.json', but there is no such file"):
        experiment.build(experiment.Config(matrix="nofile.json"))
    binary = tmp_path / "matrix.ser"
    binary.write_bytes(b"7JL\x0f\x04\x00\x00\x005\xff\xfe")
    with pytest.raises(MachineError, match=r"matrix.ser', but it is not text; name a .json file"):
        experiment.build(experiment.Config(matrix=str(binary)))
    binary.write_text("[1, 2]")
    with pytest.raises(MachineError, match=r"expected the JSON object of a machine, but found a list"):
        experiment.build(experiment.Config(matrix=str(binary)))


def write_soft_links(machine: dmm.Machine, file: Path) -> Path:
    """As the published feed-forward runs are written: a network matrix of the links that are trained."""
    leaves = {path: leaf for path, leaf in trees.paths(machine.values).items() if path not in machine.hard}
    file.write_text(trees.to_json(trees.from_paths(leaves)["matrix"]))
    return file


def test_feedforward_starts_from_a_published_matrix(tmp_path: Path):
    readable = dmm.readable_detector()
    file = write_soft_links(readable, tmp_path / "matrix.json")
    config = dmm_feedforward.Config(matrix=str(file), steps=1, laps_every=0, accumulator_gradient="truncated")
    result = fit(dmm_feedforward.build(config), config, quiet=True)
    assert result.metrics["data_loss"][0] == pytest.approx(0.0016101, abs=5e-8)
    weights = [abs(link.weight) for link in readable.links() if not link.hard]
    assert result.metrics["lasso"][0] == pytest.approx(sum(weights), rel=1e-6)
    task = dmm_feedforward.build(dataclasses.replace(config, below=0.5))
    assert task.trainable is not None
    assert np.sum(task.trainable(task.init(jax.random.key(0)))) == 13


def test_the_published_optimizer_is_that_of_given_weights(tmp_path: Path):
    assert optimizer_of("auto", has_weights=False) is optimizer_of("adam", has_weights=True) is optax.adam
    assert optimizer_of("adam-as-published", has_weights=False) is adam_as_published
    file = str(write_soft_links(dmm.readable_detector(), tmp_path / "matrix.json"))
    assert dmm_feedforward.build(dmm_feedforward.Config(cycles=3, matrix=file)).optimizer is adam_as_published
    assert dmm_lite.build(dmm_lite.Config(cycles=3, start="published")).optimizer is adam_as_published


@pytest.mark.slow
def test_lite_weighs_its_regularisation():
    for weight in (0.0, 0.1, 1.0):
        config = dmm_lite.Config(start="published", cycles=35, steps=1, laps_every=0, regularisation=weight)
        found = {
            name: values[0]
            for name, values in fit(dmm_lite.build(config), config, quiet=True).metrics.items()
        }
        assert found["regularisation"] == pytest.approx(335.15085, rel=1e-6)
        assert found["loss"] == pytest.approx(found["data_loss"] + weight * found["regularisation"], rel=1e-6)
    with pytest.raises(ConfigError, match=r"regularisation should be 0 or more, but is -1"):
        dmm_lite.Config(regularisation=-1.0)


@pytest.mark.slow
def test_lite_from_a_file_shows_published_numbers_only_of_the_published_run(tmp_path: Path):
    """Another run has other losses."""
    dmm.lite_start().save(tmp_path / "same.json")
    dmm.lite_start(below=0.1).save(tmp_path / "other.json")
    for name, has_published in (("same", True), ("other", False)):
        config = dmm_lite.Config(matrix=str(tmp_path / f"{name}.json"), steps=1, laps_every=0)
        task = dmm_lite.build(config)
        result = fit(task, config, quiet=True)
        event = CallbackEvent(1, {}, None, lambda result=result: result.state, result=result)
        assert (
            "published" in (task.callbacks[0].on_end(event) or "").split("time per step")[0]
        ) is has_published


def test_superfluid_has_the_published_losses_and_trains_only_what_is_soft():
    config = superfluid.Config(cycles=2, steps=3, laps_every=0)
    task = superfluid.build(config)
    start = task.init(jax.random.key(0))
    result = fit(task, config, quiet=True)
    np.testing.assert_allclose(result.metrics["loss"], superfluid.PUBLISHED[2], rtol=2e-5)
    assert task.trainable is not None
    soft = np.asarray(task.trainable(start))
    assert (soft.sum(), soft.size) == (2906, 2944)
    np.testing.assert_array_equal(np.asarray(start)[~soft], np.asarray(result.params)[~soft])


@pytest.mark.slow
def test_feedforward_learns():
    config = dmm_feedforward.Config(cycles=60, steps=200, learning_rate=3e-3, laps_every=0, steps_per_call=50)
    task = dmm_feedforward.build(config)
    result = fit(task, config, quiet=True)
    data_loss = result.metrics["data_loss"]
    assert data_loss[-1] < data_loss[0] / 20
    event = CallbackEvent(200, {}, None, lambda: result.state, result=result)
    told = task.callbacks[0].on_end(event) or ""
    assert told.split("\n")[0].split("  ") == ["sum of squared errors", "published run", " this run"]
    assert (
        "Two random starts are compared; --matrix FILE starts from the weights of the published run." in told
    )


@pytest.mark.slow
def test_a_run_that_was_stopped_before_its_first_step_closes_without_numbers(tmp_path: Path):
    """Ctrl-C while it starts: there is no first and no last loss."""
    config = dmm_lite.Config(cycles=12, steps=3, laps_every=0)
    task = dmm_lite.build(config)

    def interrupted(key: jax.Array) -> Any:
        signal.raise_signal(signal.SIGINT)
        return task.init(key)

    with Run.create("dmm-lite", config, runs_dir=tmp_path) as run:
        result = fit(dataclasses.replace(task, init=interrupted), config, run, quiet=True)
    assert result.metrics == {}
    assert (run.folder / "machine.json").exists()


@pytest.mark.slow
def test_feedforward_gets_below_one_from_most_starts():
    config = dmm_feedforward.Config(laps_every=0, steps_per_call=100)
    found = []
    for seed in range(4):
        result = fit(dmm_feedforward.build(config), dataclasses.replace(config, seed=seed), quiet=True)
        assert 400 < result.metrics["data_loss"][0] < 510  # As 60 random starts did.
        found.append(result.metrics["data_loss"][-1])
    assert sum(last < 1 for last in found) >= 3
