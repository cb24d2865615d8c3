"""What benchmarks/autoattack.py attacks: images, networks trained for it or kept in files, and the radius for each."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.weights import load_network, save_network
from lapwing.attacks import Attack
from lapwing.bench.measure import check_ended
from lapwing.data import load_images
from lapwing.experiments import adversarial
from lapwing.models import Cnn
from lapwing.train import fit


class Source(NamedTuple):
    """What is trained on some images, and attacked with which radius."""

    eps: dict[str, float]
    """of the network that is trained adversarially, by norm"""
    attacked: dict[str, float]
    """radius of the attacks on each network, as a share of that: neither do all images fall nor none"""
    trainings: dict[str, tuple[adversarial.Method, float, float]]
    """method, its radius as a share of eps, and share of the steps"""
    warmup: int = 200
    """steps in which the radius of the training rises"""

    def radius(self, network: str, norm: str) -> float:
        return round(self.attacked.get(network, 1.0) * self.eps[norm], 3)


_TRAININGS: dict[str, tuple[adversarial.Method, float, float]] = {
    "natural": ("natural", 1.0, 0.5),
    "replay": ("replay", 1.0, 1.0),
    "weak": ("replay", 0.4, 0.5),
}
SOURCES = {
    "digits": Source({"linf": 0.1, "l2": 0.5, "l1": 2.0}, {}, _TRAININGS),
    "mnist": Source(
        {"linf": 0.3, "l2": 2.0, "l1": 10.0},
        {"natural": 1 / 3, "weak": 2 / 3},
        _TRAININGS,
        warmup=1000,
    ),
}


def images_of(config: Any) -> tuple[np.ndarray, np.ndarray]:
    """The test images first, then for digits those of validation and training: what is compared is the attacks."""
    splits, count = load_images(config.source, config.data), config.images
    parts = (splits.test,) if config.data else (splits.test, splits.validation, splits.train)
    images = np.concatenate([np.asarray(part.pixels()) for part in parts])
    return images[:count], np.concatenate([part.labels for part in parts])[:count]


def network_of(config: Any, name: str, norm: Any) -> Cnn:
    """A network from a file, or one that is trained here, and then kept in `config.weights`."""
    if name.endswith(".npz"):
        return load_network(Path(name))
    source = SOURCES[config.source]
    method, radius, share = source.trainings[name]
    norm = "linf" if method == "natural" else norm
    label = f"{config.source}-{name}-{norm}-w{config.width}-{config.steps}x{config.train_batch}"
    kept = Path(config.weights, f"{label}.npz")
    if config.weights and kept.exists():
        return load_network(kept)
    plan = adversarial.Config(
        source=config.source,
        data=config.data,
        method=method,
        attack=Attack(eps=radius * source.eps[norm], norm=norm, steps=5),
        width=config.width,
        batch_size=config.train_batch,
        steps=int(share * config.steps),
        pretrain=300,
        eps_warmup=source.warmup,
        evaluate_every=0,
        steps_per_call=10,
        laps_every=0,
    )
    result = fit(adversarial.build(plan), plan, quiet=True)
    check_ended(result, label)
    network: Any = result.params
    if config.weights:
        save_network(network, kept)
    return network
