"""Whether a batch of images and one image alone get the same attacked images, to the bit, with the options for that,
`AutoAttack(deterministic=True)` and `Attack(chunk=n)`, and for comparison without.

On a GPU set XLA_FLAGS=--xla_gpu_deterministic_ops=true. The network is untrained: all that matters is that its
gradients are sums of many terms.
"""

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.attacks import Attack, AutoAttack
from lapwing.bench.measure import environment, main, save
from lapwing.models import Cnn


@dataclass(frozen=True)
class Config:
    """Whether batched and single attacks give the same bits."""

    width: int = 16
    """width factor of the network"""
    images: int = 64
    """images in the batch"""
    single: int = 8
    """of which this many are attacked alone too"""
    steps: int = 20
    """gradient steps; twenty times as many queries of Square"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""


def run(config: Config) -> dict[str, Any]:
    """For each attack, and with and without the option, the images that differ and the largest difference."""
    key = jax.random.key(0)
    network = Cnn.init(key, (28, 28, 1), config.width)
    images = np.asarray(jax.random.uniform(jax.random.key(1), (config.images, 28, 28, 1)))
    labels = np.asarray(jnp.argmax(network(jnp.asarray(images)), axis=1))
    keys = jax.random.split(jax.random.key(2), config.images)
    plain = AutoAttack(0.005, steps=config.steps, batch_size=config.images, queries=20 * config.steps)
    attacks: dict[str, tuple[Any, Any]] = {}
    for name in plain.names:
        alone = dataclasses.replace(plain, attacks=(name,))
        attacks[name] = alone, dataclasses.replace(alone, deterministic=True)
    pgd = Attack(eps=0.005, steps=config.steps)
    attacks["pgd"] = pgd, dataclasses.replace(pgd, chunk=config.images // 2)
    found = {}
    for name, ways in attacks.items():
        for option, attack in zip(("default", "deterministic"), ways, strict=True):
            call = _jitted(attack) if isinstance(attack, Attack) else attack
            whole = np.asarray(call(network, images, labels, keys).images)
            alone = [
                np.asarray(call(network, images[i : i + 1], labels[i : i + 1], keys[i : i + 1]).images)
                for i in range(config.single)
            ]
            apart = np.abs(whole[: config.single] - np.concatenate(alone)).reshape(config.single, -1).max(1)
            found[f"{name}, {option}"] = {"differ": int((apart > 0).sum()), "largest": float(apart.max())}
    results = {
        "environment": {**environment(), "xla_flags": os.environ.get("XLA_FLAGS", "")},
        "config": {**dataclasses.asdict(config), "out": ""},
        "found": found,
    }
    save(results, "deterministic-attacks", config.out)
    return results


def _jitted(attack: Attack) -> Any:
    return jax.jit(attack.__call__)


def show(results: dict[str, Any]) -> None:
    """Prints a line for each."""
    single = results["config"]["single"]
    for name, found in results["found"].items():
        print(f"{name:24} {found['differ']} of {single} images differ, by {found['largest']:.1e} at most")


if __name__ == "__main__":
    main(Config, run, show)
