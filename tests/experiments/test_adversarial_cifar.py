"""CIFAR-10 in adversarial training, on a generated stand-in of the same format."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.attacks import Attack
from lapwing.cli import main
from lapwing.data import Augmentation, load_cifar10
from lapwing.experiments.adversarial import Config, build, init_network
from lapwing.models import Cnn, ResNet
from tests.data.cifar import archive_of, files, write_folder

KEY = jax.random.key(3)


def config_of(path: Path, **changes) -> Config:
    return dataclasses.replace(
        Config(source="cifar10", data=str(path), verify=False, width=1, blocks=1, batch_size=8), **changes
    )


def test_a_step_draws_shifted_and_mirrored_images_by_its_key(tmp_path: Path):
    config = config_of(write_folder(tmp_path, "bin", 20))
    assert config.augmentation == Augmentation(4, flip=True)
    task = build(config)
    memory = task.memory(KEY)
    draw = jax.jit(lambda key, step: task.data(key, step, memory))
    batch, again = draw(KEY, jnp.int32(3)), draw(KEY, jnp.int32(3))
    np.testing.assert_array_equal(batch.images, again.images)
    assert not np.array_equal(batch.images, draw(jax.random.key(4), jnp.int32(3)).images)
    plain = load_cifar10(config.data, verify=False).train.pixels()[batch.examples]
    np.testing.assert_array_equal(batch.images, config.augmentation.apply(plain, batch.view))
    assert len(set(batch.view.tolist())) > 4
    without = dataclasses.replace(config, augment=False)
    assert without.augmentation == Augmentation()


def test_cifar_has_a_residual_network_and_digits_do_not():
    for source, network, kind in (
        ("cifar10", "auto", ResNet),
        ("cifar10", "cnn", Cnn),
        ("digits", "auto", Cnn),
    ):
        config = Config(source=source, network=network, width=1)
        made = jax.eval_shape(lambda key, config=config: init_network(key, config, (32, 32, 3)), KEY)
        assert type(made) is kind


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fast", "replay"])
@pytest.mark.parametrize("version", ["py", "bin"])
def test_the_commands_train_and_evaluate(version: str, method: str, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = Path("cifar.tar.gz")
    path.write_bytes(archive_of(files(version, 20)))
    small = ["--width", "1", "--blocks", "1", "--steps", "4", "--batch-size", "10", "--validation", "10"]
    words = [
        "--pretrain",
        "1",
        "--eps-warmup",
        "1",
        "--validation-steps",
        "2",
        "--laps-every",
        "0",
        "--no-check",
    ]
    train = [
        "train",
        "adversarial",
        "--source",
        "cifar10",
        "--data",
        str(path),
        "--method",
        method,
        *small,
        *words,
    ]
    assert main(train) == 2
    assert "--no-verify" in capsys.readouterr().err
    assert main([*train, "--no-verify"]) == 0
    capsys.readouterr()
    options = ["--examples", "4", "--steps", "2", "--queries", "4", "--masking", "2", "--no-curve", "--json"]
    assert main(["evaluate", "latest", *options]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["natural"]["count"] == 4
    assert told["eps"] == pytest.approx(8 / 255)


@pytest.mark.slow
@pytest.mark.optimized
def test_a_residual_network_learns_the_stand_in_under_attack(tmp_path: Path):
    from lapwing.train import fit

    config = config_of(
        write_folder(tmp_path, "py", 60),
        method="fast",
        attack=Attack(eps=8 / 255),
        steps=150,
        pretrain=20,
        eps_warmup=50,
        batch_size=32,
        shift=1,
        augment=False,
        validation=30,
        validation_steps=5,
        evaluate_every=0,
        laps_every=0,
        learning_rate=5e-3,
    )
    result = fit(build(config), config, quiet=True)
    assert result.evaluation["eval_natural"] > 0.8
    assert result.evaluation["eval_robust"] > 0.6
