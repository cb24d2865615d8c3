"""Objectives in a training: what is attacked, what is minimized, and what is averaged."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.attacks import Attack, AutoAttack, Mart, Trades, objective_of
from lapwing.attacks._objectives import OBJECTIVES
from lapwing.experiments import find, load_trained
from lapwing.experiments.adversarial import Config, build, splits_of
from lapwing.journal import Run
from lapwing.train import ConfigError, fit

from .test_adversarial import KEY, SMALL, with_method


def prepared_batch(config: Config):
    task = build(config)
    network = task.init(jax.random.key(0))

    @jax.jit
    def made(memory):
        batch = task.prepare(network, task.data(KEY, jnp.int32(0), memory), KEY)
        return batch, task.loss(network, batch), task.remember(memory, batch, {})

    return network, *made(task.memory(jax.random.key(1)))


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["trades", pytest.param("mart", marks=pytest.mark.slow)])
def test_the_loss_is_the_objective_of_the_images_with_and_without_their_attack(objective: str):
    config = with_method("replay", objective=objective, beta=2.0)
    network, batch, (loss, metrics), memory = prepared_batch(config)
    scores = network(batch.images), network(batch.natural)
    expected = jnp.mean(objective_of(objective, 2.0)(*scores, batch.labels))
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    for name, each in zip(("accuracy", "natural_accuracy"), scores, strict=True):
        np.testing.assert_allclose(metrics[name], jnp.mean(jnp.argmax(each, axis=1) == batch.labels))
    moved = np.abs(batch.images - batch.natural).max(axis=(1, 2, 3))
    assert (moved > 0.05).all()
    assert (moved <= 0.1 + 1e-6).all()
    kept, known = memory.replay.recall(batch.examples)
    assert known.all()
    np.testing.assert_allclose(kept, batch.deltas, atol=1e-4)


def test_radii_are_those_of_the_images_and_the_norm_unless_they_are_given():
    assert Config().attack.eps == 0.15
    assert Config(source="mnist", attack=Attack(eps=0.0, norm="l2")).attack.eps == 2.0
    assert Config(source="mnist", attack=Attack(eps=0.0)).attack.eps == 0.3
    assert Config(source="cifar10").attack.eps == pytest.approx(8 / 255)
    assert Config(source="cifar10", attack=Attack(eps=0.0, norm="l1")).attack.eps == 12.0
    assert Config(source="mnist", attack=Attack(eps=0.15)).attack.eps == 0.15
    assert Config(objective=Trades(3.0)).minimized == Trades(3.0)
    assert Config(objective="mart").minimized == Mart(5.0)
    with pytest.raises(ConfigError, match="cross_entropy has none"):
        Config(beta=1.0)
    with pytest.raises(ConfigError, match="beta should be a number of at least 0, but is -1"):
        Config(objective="trades", beta=-1.0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["natural", "pgd", "fast", "free", "replay"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_method_trains_with_every_objective(method: str, objective: str):
    config = with_method(method, objective=objective, steps=2, ema=0.5)
    result = fit(build(config), config, quiet=True)
    assert result.ended == "finished"
    assert np.isfinite(result.metrics["loss"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_perturbations_of_other_norms_stay_in_their_balls(norm: str):
    config = with_method("replay", attack=Attack(eps=0.0, norm=norm, steps=3))
    _, batch, _, _ = prepared_batch(config)
    added = np.asarray(batch.images - batch.natural).reshape(16, -1)
    lengths = np.sqrt((added**2).sum(1)) if norm == "l2" else np.abs(added).sum(1)
    assert (lengths <= config.attack.eps + 1e-4).all()
    assert lengths.mean() > 0.3 * config.attack.eps


@pytest.mark.slow
def test_the_averaged_weights_are_what_is_evaluated_and_in_the_checkpoint(tmp_path: Path):
    config = dataclasses.replace(SMALL, ema=0.9)
    task = build(config)
    with Run.create("adversarial", config, runs_dir=tmp_path) as run:
        result = fit(task, config, run, quiet=True)
    trained = load_trained(Run.open(run.folder), find("adversarial"), "newest")
    for one, average, last in zip(
        *map(jax.tree.leaves, (trained.params, result.state.ema, result.params)), strict=True
    ):
        np.testing.assert_array_equal(one, average)
        assert not np.array_equal(average, last)
    images = splits_of(config).validation
    right = (
        jnp.argmax(trained.params(images.pixels(slice(config.validation))), axis=1)
        == images.labels[: config.validation]
    )
    np.testing.assert_allclose(result.evaluation["eval_natural"], jnp.mean(right), atol=1e-6)


@pytest.mark.slow
@pytest.mark.optimized
def test_trades_and_mart_are_far_more_robust_than_natural_training():
    shares = {}
    for method, objective in (("natural", "cross_entropy"), ("replay", "trades"), ("replay", "mart")):
        config = Config(
            method=method,
            objective=objective,
            width=4,
            steps=1000,
            steps_per_call=10,
            ema=0.99,
            laps_every=0,
            evaluate_every=0,
        )
        result = fit(build(config), config, quiet=True)
        test = splits_of(config).test
        attack = AutoAttack(eps=0.15, attacks=("apgd-ce", "apgd-t"), steps=30)
        found = attack(result.state.ema, test.pixels(slice(200)), test.labels[:200], KEY)
        shares[objective] = found.robust.mean()
        assert found.natural.mean() > 0.85
    assert shares["cross_entropy"] < 0.12
    assert shares["trades"] > 0.22
    assert shares["mart"] > 0.3
