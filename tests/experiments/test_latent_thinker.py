"""The thinker's experiment: it learns what it says on examples it has never seen, and its latents and steps matter."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

from lapwing.check import run_all
from lapwing.cli import main
from lapwing.data import Curriculum
from lapwing.experiments.latent_thinker import Config, build
from lapwing.journal import Run, find_run
from lapwing.models import ThinkerSize
from lapwing.train import ConfigError, Schedule, fit
from tests.slow import some

TINY = ThinkerSize(latents=2, steps=2, heads=2, width=16, layers=1)
SMALL = Config(
    task="flip",
    base=4,
    length=4,
    model=TINY,
    batch_size=32,
    evaluated=200,
    steps=300,
    learning_rate=1e-2,
    schedule=Schedule("cosine", warmup=20),
    laps_every=0,
    steps_per_call=50,
)


def trained(**changes):
    config = dataclasses.replace(SMALL, **changes)
    return fit(build(config), config, quiet=True)


@pytest.mark.slow
def test_it_learns_to_answer_what_it_has_never_seen():
    told = trained().evaluation
    assert told["eval_baseline_exact_match"] < 0.1
    assert told["eval_baseline_token_accuracy"] < 0.6
    assert told["eval_exact_match"] > 0.9
    assert told["eval_token_accuracy"] >= told["eval_exact_match"]
    places = [told[f"eval_place_{i}"] for i in range(5)]
    assert min(places) > 0.9


@pytest.mark.parametrize(
    ("changes", "places"),
    some([({"base": 16}, 4), ({"base": 10}, 5), ({"task": "copy", "length": 3}, 4)], 2),
    ids=["the largest sum has three digits", "four digits", "three symbols"],
)
def test_places_that_no_answer_has_are_left_out(changes, places):
    task = build(dataclasses.replace(SMALL, **{"task": "add", "below": 1000, "far": 1000, **changes}))
    assert task.evaluate is not None
    found = jax.eval_shape(task.evaluate, task.init(jax.random.key(0)), jax.random.key(1))
    assert sorted(name for name in found if name.startswith("place_")) == [
        f"place_{i}" for i in range(places)
    ]


@pytest.mark.slow
def test_a_curriculum_grows_with_what_is_learned():
    lessons = Curriculum(start=1, bound=0.5, least=10)
    result = trained(curriculum=lessons, task="copy", steps=200)
    lengths = result.metrics["length"]
    assert (lengths[0], lengths[-1]) == (1, 4)
    assert set(np.diff(lengths)) == {0, 1}
    assert int(result.state.memory.length) == 4


@pytest.mark.slow
def test_the_loss_of_every_step_and_sampled_steps(tmp_path: Path):
    for changes in ({"every_step": True}, {"sample_steps": True, "task": "add", "below": 16, "far": 64}):
        result = trained(steps=4, steps_per_call=2, **changes)
        assert np.isfinite(result.metrics["loss"]).all()
    assert result.evaluation["eval_far_exact_match"] <= 1
    task = build(dataclasses.replace(SMALL, sample_steps=True))
    assert task.memory is not None
    stage = task.memory(jax.random.key(0))
    draw = jax.jit(lambda key: task.data(key, 0, stage).steps)
    assert {int(draw(jax.random.key(seed))) for seed in range(20)} == {1, 2}


@pytest.mark.slow
def test_latents_and_steps_matter_where_the_memory_is_all_there_is():
    """Four symbols of 16, one head: one thought cannot hold them, four can, be it by latents or by steps."""
    right = {}
    for latents, steps in ((1, 1), (4, 1), (1, 4)):
        size = ThinkerSize(latents, steps, heads=1, width=16, layers=1, hide_input_after=steps - 1)
        told = trained(task="copy", base=16, model=size, steps=1500).evaluation
        right[latents, steps] = told["eval_token_accuracy"]
    assert right[4, 1] > right[1, 1] + 0.1
    assert right[1, 4] > right[1, 1] + 0.1


@pytest.mark.slow
def test_the_doctor_finds_nothing():
    """Of what the quick checks leave out, which tests/check makes."""
    config = dataclasses.replace(SMALL, batch_size=4)
    (outcome,) = run_all(build(config), config, only=["batch_independence"])
    assert outcome.result == "passed", outcome


@pytest.mark.slow
def test_the_command_trains_it(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = "--task add --base 4 --below 16 --far 0 --model.width 8 --model.layers 1 --steps 3 --evaluated 20"
    assert (
        main(
            [
                "train",
                "latent-thinker",
                *words.split(),
                "--batch-size",
                "4",
                "--laps-every",
                "0",
                "--no-check",
            ]
        )
        == 0
    )
    assert "eval_exact_match" in capsys.readouterr().out
    run = Run.open(find_run("latest"))
    assert run.config["model"]["width"] == 8
    assert run.columns()["length"][0] == 2


def test_options_that_make_no_sense_are_refused(capsys):
    for option, sentence in (
        (["--model.heads", "3"], "model.width should be a multiple of the heads (3), but is 64"),
        (["--base", "1"], "base should be at least 2, but is 1"),
        (["--curriculum.bound", "2"], "curriculum.bound should be from 0 to below 1, but is 2.0"),
    ):
        assert main(["train", "latent-thinker", *option]) == 2
        assert sentence in capsys.readouterr().err
    with pytest.raises(
        ConfigError, match=r"far should be at least as large as below \(1000\), or 0 for none"
    ):
        Config(far=10)
