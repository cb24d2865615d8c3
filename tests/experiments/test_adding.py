import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

from lapwing.cli import main
from lapwing.experiments.adding import BASELINE, Config, build, predict, sequences
from lapwing.journal import Run, find_run
from lapwing.train import fit


def test_the_sum_is_that_of_the_two_marked_numbers():
    inputs, sums = sequences(jax.random.key(0), 1000, 10)
    numbers, marks = np.asarray(inputs[..., 0]), np.asarray(inputs[..., 1])
    assert (marks[:5].sum(axis=0) == 1).all()
    assert (marks[5:].sum(axis=0) == 1).all()
    np.testing.assert_allclose((numbers * marks).sum(axis=0), sums, rtol=1e-6)
    assert set(marks.argmax(axis=0)) == set(range(5))
    np.testing.assert_allclose(np.mean((np.asarray(sums) - 1) ** 2), BASELINE, atol=0.02)


@pytest.mark.slow
def test_sequences_of_a_batch_do_not_look_at_each_other():
    params = build(Config(width=8)).init(jax.random.key(0))
    inputs, _ = sequences(jax.random.key(1), 5, 10)
    alone = predict(params, inputs[:, 2:3])
    np.testing.assert_allclose(predict(params, inputs)[2], alone[0], rtol=1e-5)


@pytest.mark.slow
def test_it_learns_far_below_the_baseline():
    config = Config(length=10, width=16, steps=300, laps_every=0, steps_per_call=50)
    result = fit(build(config), config, quiet=True)
    assert result.evaluation["eval_loss"] < BASELINE / 4


@pytest.mark.slow
def test_its_numbers_do_not_depend_on_the_steps_in_a_call():
    config = Config(length=8, width=8, steps=20, laps_every=0)
    one = fit(build(config), config, quiet=True)
    other = dataclasses.replace(config, steps_per_call=6)
    many = fit(build(other), other, quiet=True)
    np.testing.assert_array_equal(one.metrics["loss"], many.metrics["loss"])
    np.testing.assert_array_equal(one.params["recurrent"], many.params["recurrent"])


@pytest.mark.slow
def test_the_command_trains_it(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "adding", "--steps", "20", "--length", "6", "--width", "4"]) == 0
    out = capsys.readouterr().out
    run = Run.open(find_run("latest"))
    assert f"run folder: {Path('runs') / run.name}" in out
    assert run.state == "finished"
    assert run.config["length"] == 6
    assert run.environment["device"]
    assert len(run.columns()["step"]) == 21


def test_options_that_make_no_sense_leave_no_run(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "adding", "--learning-rate", "-1"]) == 2
    assert "learning_rate should be a positive number, but is -1.0" in capsys.readouterr().err
    for option, least in (("--width", 1), ("--batch-size", 1), ("--length", 2)):
        assert main(["train", "adding", option, str(least - 1)]) == 2
        assert f"should be at least {least}" in capsys.readouterr().err
    assert main(["train", "adding", "--stps", "5"]) == 2
    assert "--steps INT" in capsys.readouterr().err
    assert main(["train", "addign"]) == 2
    assert capsys.readouterr().err == "lapwing: 'addign' is not an experiment; did you mean adding?\n"
    assert not Path("runs").exists()
