"""What a step of adversarial training attacks, stores and reports."""

import dataclasses
import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.attacks import Attack, robustness, strong
from lapwing.check import run_all
from lapwing.cli import main
from lapwing.experiments._adversarial_end import verdict
from lapwing.experiments.adversarial import BATCH_AXIS, Batch, Config, build, splits_of, training_attack
from lapwing.journal import Run, find_run
from lapwing.train import ConfigError, fit
from tests.slow import some

KEY = jax.random.key(3)
SMALL = Config(
    steps=6,
    width=1,
    batch_size=16,
    pretrain=0,
    eps_warmup=0,
    attack=Attack(eps=0.1, steps=2),
    validation=10,
    validation_steps=2,
    evaluate_every=0,
    laps_every=0,
)


def with_method(method, **changes) -> Config:
    return dataclasses.replace(SMALL, method=method, **changes)


@functools.cache
def compiled(config: Config):
    task = build(config)
    network = task.init(jax.random.key(0))

    @jax.jit
    def made(memory, step):
        drawn = task.data(jax.random.fold_in(KEY, step), step, memory)
        prepared = task.prepare(network, drawn, KEY) if task.prepare else drawn
        return drawn, prepared, task.remember(memory, prepared, {})

    return made, task.memory(jax.random.key(1))


def one_step(config: Config, step: int = 0, memory=None):
    """The batch as it is drawn, as the attack leaves it, and the memory after it."""
    made, first = compiled(config)
    return made(first if memory is None else memory, jnp.int32(step))


@pytest.mark.parametrize("method", some(["pgd", "fast", "replay"], 1))
def test_the_attack_moves_every_image_within_the_ball(method):
    drawn, prepared, _ = one_step(with_method(method))
    moved = np.abs(prepared.images - drawn.images).reshape(16, -1).max(axis=1)
    assert (moved > 0.05).all()
    assert (moved <= 0.1 + 1e-6).all()
    np.testing.assert_array_equal(prepared.labels, drawn.labels)


def test_replay_begins_where_the_last_attack_on_the_example_ended():
    config = with_method("replay", batch_size=1200)
    _, first, memory = one_step(config)
    again, _, _ = one_step(config, 1, memory)
    assert again.known.all()
    order, other = np.argsort(first.examples), np.argsort(again.examples)
    np.testing.assert_allclose(again.deltas[other], first.deltas[order], atol=1e-4)


def test_a_perturbation_moves_along_with_its_image():
    """Each view of an image is attacked from the perturbation of its last view, where the two overlap."""
    config = with_method("replay", batch_size=1200, shift=1)
    _, first, memory = one_step(config)
    again, _, _ = one_step(config, 1, memory)
    assert again.known.all()
    order, other = np.argsort(first.examples), np.argsort(again.examples)
    one, two = np.asarray(first.view)[order], np.asarray(again.view)[other]
    assert 0.05 < np.mean(one == two) < 0.2
    for number in range(20):
        # The image, and so its perturbation, moves by the difference of the two shifts.
        rows, columns = two[number] // 3 - one[number] // 3, two[number] % 3 - one[number] % 3
        before, after = first.deltas[order[number], :, :, 0], again.deltas[other[number], :, :, 0]
        np.testing.assert_allclose(
            after[2:-2, 2:-2], np.roll(before, (-rows, -columns), (0, 1))[2:-2, 2:-2], atol=1e-4
        )


def test_steps_without_an_attack_leave_images_and_memory_alone():
    drawn, prepared, memory = one_step(with_method("replay", pretrain=5))
    np.testing.assert_array_equal(prepared.images, drawn.images)
    assert not memory.replay.recall(drawn.examples, drawn.view)[1].any()


@pytest.mark.slow
def test_a_memory_may_be_smaller_than_the_data():
    _, prepared, memory = one_step(with_method("replay", memory=20))
    assert memory.replay.deltas.shape == (20, 8, 8, 1)
    assert set(memory.replay.owner.tolist()) - {-1} <= set(prepared.examples.tolist())


def test_free_uses_a_batch_again_one_step_further():
    config = with_method("free", replays=2)
    first, prepared, memory = one_step(config)
    second, further, memory = one_step(config, 1, memory)
    third, _, _ = one_step(config, 2, memory)
    np.testing.assert_array_equal(first.examples, second.examples)
    assert set(first.examples.tolist()).isdisjoint(third.examples.tolist())
    np.testing.assert_array_equal(prepared.images, first.images)
    np.testing.assert_allclose(further.images, np.clip(first.images + prepared.deltas, 0, 1), atol=1e-6)
    assert np.abs(prepared.deltas).max() > 0.09


@pytest.mark.slow
@pytest.mark.optimized
def test_free_is_free():
    """The gradient of the attack is found in the pass of the update; by itself it would double the work."""
    costs = {}
    for method in ("natural", "free"):
        task = build(with_method(method))
        network = task.init(KEY)

        def step(network, memory, number, task=task):
            batch = task.data(KEY, number, memory)
            attacked = task.prepare(network, batch, KEY) if task.prepare else batch
            (value, _), slopes = jax.value_and_grad(task.loss, has_aux=True)(network, attacked)
            return value, slopes, task.remember(memory, attacked, {})

        compiled = jax.jit(step).lower(network, task.memory(KEY), jnp.int32(1)).compile()
        costs[method] = compiled.cost_analysis()["flops"]
    assert costs["free"] < 1.4 * costs["natural"]


@pytest.mark.slow
def test_the_doctor_finds_nothing():
    """Of what the quick checks leave out, which tests/check makes."""
    (outcome,) = run_all(build(SMALL), SMALL, only=["batch_independence"])
    assert outcome.result == "passed", outcome


@pytest.mark.slow
def test_a_resumed_run_replays_the_same(tmp_path: Path):
    def trained(steps: int, run=None):
        config = dataclasses.replace(SMALL, steps=steps)
        return fit(build(config), config, run, quiet=True, allow_change=True)

    whole = trained(6)
    with Run.create("adversarial", SMALL, runs_dir=tmp_path) as run:
        trained(3, run)
    with Run.reopen(run.folder) as again:
        resumed = trained(6, again)
    for one, other in zip(jax.tree.leaves(whole.state), jax.tree.leaves(resumed.state), strict=True):
        np.testing.assert_array_equal(one, other)
    assert int(jnp.sum(whole.state.memory.replay.owner >= 0)) == 6 * 16


@pytest.mark.slow
@pytest.mark.parametrize("policy", some(["hardest", "oldest"], 0))
def test_other_policies_train_on_the_examples_that_were_never_attacked(policy):
    config = with_method("replay", policy=policy)
    _, first, memory = one_step(config)
    second, _, _ = one_step(config, 1, memory)
    assert set(first.examples.tolist()).isdisjoint(second.examples.tolist())


def test_methods_of_one_step_have_a_length_of_their_own():
    assert training_attack(with_method("fast")).step_size == 1.25
    assert training_attack(with_method("free")).steps == 1
    assert training_attack(with_method("pgd")) == SMALL.attack
    assert training_attack(with_method("replay")).step_size == 0.75
    assert training_attack(with_method("replay", attack=Attack(step_size=0.1))).step_size == 0.1


def test_catastrophic_overfitting_is_said():
    found = {"eval_natural": 0.99, "eval_one_step": 0.9, "eval_robust": 0.1, "eval_overfit": 0.8}
    history = {"step": np.array([5, 10]), "eval_robust": np.array([0.6, 0.1])}
    said = verdict(found, history, 40)
    assert said.startswith("catastrophic overfitting: the validation accuracy is 90.0% under")
    assert said.endswith("The best was 60.0% after step 5.")
    fine = verdict({**found, "eval_robust": 0.85, "eval_overfit": 0.05}, {}, 40)
    assert fine.startswith("validation accuracy: 99.0%, 85.0% under 40 steps")


@pytest.mark.slow
def test_the_commands_train_and_evaluate(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = ["--width", "1", "--steps", "3", "--batch-size", "16", "--validation", "10", "--laps-every", "0"]
    words = ["--attack.steps", "2", "--validation-steps", "2", "--no-check"]
    assert main(["train", "adversarial", *small, *words]) == 0
    assert "report the number of `lapwing evaluate`" in capsys.readouterr().out
    words = ["--attack", "pgd", "--steps", "2", "--restarts", "3", "--examples", "20", "--json"]
    assert main(["evaluate", "latest", *words]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["step"] == 3
    assert told["natural"]["count"] == 20
    assert len(told["after_restarts"]) == 3
    assert [round(point["eps"], 4) for point in told["curve"]][::2] == [0.0, 0.075, 0.15, 0.225]
    run = Run.open(find_run("latest"))
    assert {path.name for path in run.pictures} == {"robustness.png", "attacked.png"}
    assert json.loads(run.file("evaluation.json").read_text()) == told
    assert "evaluated at step 3: natural" in run.story
    assert main(["evaluate", "latest", "--step", "7"]) == 2
    assert "has no checkpoint of step 7; there are: 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"width": 0}, "width should be at least 1, but is 0"),
        ({"pretrain": -1}, "pretrain should be at least 0, but is -1"),
        ({"memory": 20, "policy": "oldest"}, "policy should be uniform if the buffer does not hold all"),
        ({"memory": 3}, "memory should be 0, or at least the 16 images of a batch, but is 3"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict, said: str):
    with pytest.raises(ConfigError, match=said):
        dataclasses.replace(SMALL, **options)


@pytest.mark.slow
@pytest.mark.optimized
def test_one_long_step_ends_in_catastrophic_overfitting(tmp_path: Path):
    config = Config(
        method="fast",
        attack=Attack(eps=0.3),
        width=2,
        learning_rate=5e-3,
        pretrain=50,
        eps_warmup=50,
        steps=3000,  # Most seeds get there at about 1500, and rounding decides when.
        evaluate_every=150,
        laps_every=0,
    )
    with Run.create("adversarial", config, runs_dir=tmp_path) as run:
        result = fit(build(config), config, run, quiet=True)
    assert result.outcome.startswith("eval_overfit is 0.")
    assert result.evaluation["eval_robust"] < 0.1
    assert "catastrophic overfitting: the validation accuracy is" in Run.open(run.folder).story


@pytest.mark.slow
@pytest.mark.optimized
def test_replay_is_far_more_robust_than_natural_training():
    shares = {}
    for method in ("natural", "replay"):
        config = Config(method=method, laps_every=0, evaluate_every=0)
        result = fit(build(config), config, quiet=True)
        test, attack = splits_of(config).test, strong(0.15, steps=50, restarts=3)
        (found,) = robustness(
            lambda n, x: n(x), result.params, test.pixels(), test.labels, attack, KEY, batch_size=397
        )
        shares[method] = found.robust.accuracy
        assert found.natural.accuracy > 0.93
    assert shares["natural"] < 0.15
    assert shares["replay"] > 0.45


def test_a_batch_names_its_parts():
    """The batch axes that the checks use cover all of it."""
    assert set(BATCH_AXIS._asdict()) == set(Batch._fields)
