"""The three experiments with dataflow matrix machines, run as a person runs them."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

from lapwing import dmm
from lapwing.cli import main
from lapwing.experiments import dmm_feedforward, dmm_lite, superfluid
from lapwing.journal import Run, find_run
from lapwing.train import ConfigError, Stop, fit

from ..dmm.shared import LITE_FILE, needs_lite_file


@needs_lite_file
def test_lite_prints_the_published_losses_and_ours(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "dmm-lite", "--matrix", str(LITE_FILE), "--laps-every", "0"]) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    assert [row[0] for row in rows] == [str(step) for step in range(1, 17)]
    for _, data_loss, theirs, regularisation, theirs_too in rows:
        assert float(data_loss) == pytest.approx(float(theirs), rel=2e-5)
        assert float(regularisation) == pytest.approx(float(theirs_too), rel=2e-5)
    run = Run.open(find_run("latest"))
    machine = dmm.Machine.from_json((run.folder / "machine.json").read_text())
    assert len(machine.links()) == 851
    assert (run.folder / "answers.png").stat().st_size > 1000


def test_lite_from_a_random_start():
    config = dmm_lite.Config(cycles=12, steps=3, laps_every=0)
    task = dmm_lite.build(config)
    params = task.init(jax.random.key(0))
    assert params.shape == (20308,)
    assert abs(float(np.std(params)) - config.spread) < 0.01
    result = fit(task, config, quiet=True)
    assert result.metrics["regularisation"][2] < result.metrics["regularisation"][0]


def test_lite_says_which_file_it_misses():
    with pytest.raises(
        ConfigError, match=r"expected matrix to be a JSON file with weights, but nofile.json: No such"
    ):
        dmm_lite.build(dmm_lite.Config(matrix="nofile.json"))


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


def test_feedforward_learns():
    config = dmm_feedforward.Config(cycles=60, steps=200, learning_rate=3e-3, laps_every=0, steps_per_call=50)
    task = dmm_feedforward.build(config)
    result = fit(task, config, quiet=True)
    data_loss = result.metrics["data_loss"]
    assert data_loss[-1] < data_loss[0] / 20
    assert task.finish is not None
    assert "sum of squared errors" in (task.finish(result, None) or "")


def test_a_run_that_was_stopped_before_its_first_step_closes_without_numbers(tmp_path: Path):
    """Ctrl-C while it is compiled: there is no first and no last loss."""
    config = dmm_lite.Config(cycles=12, steps=3, laps_every=0, stop=Stop(minutes=1e-9))
    with Run.create("dmm-lite", config, runs_dir=tmp_path) as run:
        result = fit(dmm_lite.build(config), config, run, quiet=True)
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
