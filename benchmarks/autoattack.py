"""AutoAttack beside the original: accuracy under each attack on the same weights, and the time of both.

Three networks for 8×8 digits are trained: `natural`, `replay` (adversarially, as `lapwing train adversarial` does) and
`weak` (with a smaller ball and half the steps). Each attack runs on all images alone, by Lapwing and by the original,
which needs PyTorch and so runs in a process of its own: `--python` is an interpreter that has it, `--original` a
checkout of github.com/fra31/auto-attack. Without these only Lapwing runs. Lapwing and the original take turns, network
by network and norm by norm. Seconds are of the processor, all threads together, so that other work on the machine
changes them little.
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.attacks import Attack, AutoAttack
from lapwing.bench.measure import BenchError, environment, main, save
from lapwing.data import load_digits
from lapwing.experiments import adversarial
from lapwing.models import Cnn
from lapwing.train import fit

_TRAININGS = {  # Method, radius of its attack, and share of the steps.
    "natural": ("natural", 0.0, 1.0),
    "replay": ("replay", 0.1, 1.0),
    "weak": ("replay", 0.04, 0.5),
}
_EPS = {"linf": 0.1, "l2": 0.5, "l1": 2.0}  # Neither do all images fall nor none.
_ORIGINAL = Path(__file__).with_name("autoattack_original.py")


@dataclass(frozen=True)
class Config:
    """AutoAttack beside the original, on the same weights."""

    python: str = ""
    """Python with PyTorch, for the original; empty: only Lapwing"""
    original: str = ""
    """checkout of the original"""
    networks: tuple[str, ...] = ("natural", "replay", "weak")
    """networks to attack"""
    norms: tuple[str, ...] = ("linf",)
    """norms"""
    attacks: tuple[str, ...] = ("apgd-ce", "apgd-t", "fab-t", "square")
    """attacks, each on all images"""
    images: int = 1000
    """number of images, from the test images on"""
    width: int = 2
    """width factor of the networks"""
    steps: int = 1000
    """training steps"""
    batch_size: int = 250
    """images attacked at once, by both"""
    queries: int = 5000
    """queries of square"""
    seed: int = 0
    """seed of the attacks"""
    weights: str = ""
    """folder in which trained networks are kept between runs; empty: none"""
    name: str = "autoattack"
    """name of the results"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""


def run(config: Config) -> dict[str, Any]:
    """Attacks each network with each norm, by both in turn."""
    for name in config.networks:
        if name not in _TRAININGS:
            raise BenchError(f"networks are {', '.join(_TRAININGS)}, not {name!r}")
    without_paths = dataclasses.asdict(config) | {"python": "", "original": "", "weights": "", "out": ""}
    results: dict[str, Any] = {
        "environment": environment(),
        "config": without_paths,
        "points_per_image": 100 / config.images,
        "rows": [],
    }
    images, labels = _images(config.images)
    for norm in map(str, config.norms):
        for name in config.networks:
            network, eps = _network(config, name), _EPS[norm]
            ours = _ours(config, network, images, labels, norm, eps)
            theirs = _theirs(config, network, images, labels, norm, eps) if config.python else None
            row = {"network": name, "norm": norm, "eps": eps, "lapwing": ours, "original": theirs}
            results["rows"].append(row)
            _show_row(row, sys.stderr)
            save(results, config.name, config.out)
    return results


def show(results: dict[str, Any]) -> None:
    """Prints the accuracies of both, and the seconds."""
    for row in results["rows"]:
        _show_row(row, sys.stdout)


def _show_row(row: dict[str, Any], where: Any) -> None:
    ours, theirs = row["lapwing"], row["original"]
    print(f"{row['network']}, {row['norm']} {row['eps']:g}: natural {ours['natural']:.2%}", file=where)
    for name in [*ours["seconds"], "total"]:
        cells = [
            f"{found['accuracy'][name]:8.2%} {found['seconds'].get(name, np.nan):8.2f} s"
            for found in (ours, theirs)
            if found
        ]
        print(f"  {name:9}" + "   ".join(cells), file=where, flush=True)


def _images(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The test images first, then those of validation and training: what is compared is the attacks."""
    splits = load_digits()
    parts = splits.test, splits.validation, splits.train
    images = np.concatenate([np.asarray(part.pixels()) for part in parts])
    return images[:count], np.concatenate([part.labels for part in parts])[:count]


def _network(config: Config, name: str) -> Cnn:
    kept = Path(config.weights) / f"{name}-w{config.width}-{config.steps}.npz" if config.weights else None
    blank = Cnn.init(jax.random.key(0), (8, 8, 1), config.width)
    if kept is not None and kept.exists():
        with np.load(kept) as arrays:
            return jax.tree.unflatten(
                jax.tree.structure(blank), [jnp.asarray(arrays[key]) for key in _fields(blank)]
            )
    method, eps, share = _TRAININGS[name]
    plan = adversarial.Config(
        method=method,
        attack=Attack(eps=eps or 0.1, steps=5),
        width=config.width,
        steps=int(share * config.steps),
        pretrain=300,
        eps_warmup=200,
        evaluate_every=0,
    )
    network: Any = fit(adversarial.build(plan), plan, quiet=True).params
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.savez(kept, **_arrays(network))
    return network


def _fields(network: Cnn) -> list[str]:
    return [field.name for field in dataclasses.fields(network)]


def _arrays(network: Cnn) -> dict[str, np.ndarray]:
    return {name: np.asarray(getattr(network, name)) for name in _fields(network)}


def _ours(
    config: Config, network: Cnn, images: np.ndarray, labels: np.ndarray, norm: Any, eps: float
) -> dict[str, Any]:
    """Accuracies and processor seconds; the attacks have run before, so that nothing is compiled."""
    attack = AutoAttack(
        eps,
        norm,
        attacks=tuple(config.attacks),
        batch_size=config.batch_size,
        individually=True,
        queries=config.queries,
    )
    few = slice(min(config.batch_size, len(labels)))
    begin = time.perf_counter()
    attack(network, images[few], labels[few], jax.random.key(config.seed))
    first = time.perf_counter() - begin
    stamps = [time.process_time()]
    found = attack(
        network,
        images,
        labels,
        jax.random.key(config.seed),
        on_attack=lambda _: stamps.append(time.process_time()),
    )
    furthest = {"linf": np.max, "l2": lambda x: np.sqrt(np.sum(x**2)), "l1": np.sum}[norm]
    assert found.alone is not None
    return {
        "natural": float(found.natural.mean()),
        "accuracy": dict(zip(found.names, found.alone, strict=True)) | {"total": float(found.robust.mean())},
        "seconds": dict(zip(found.names, np.diff(stamps).tolist(), strict=True)),
        "first_batch_seconds": first,
        "furthest": float(max(furthest(np.abs(x)) for x in (found.images - images).astype(np.float64))),
    }


def _theirs(
    config: Config, network: Cnn, images: np.ndarray, labels: np.ndarray, norm: str, eps: float
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "problem.npz"
        np.savez(
            data,
            images=images,
            labels=labels,
            scores=np.asarray(network(jnp.asarray(images))),
            **_arrays(network),
        )
        options = {
            "norm": norm, "eps": eps, "attacks": list(config.attacks), "batch_size": config.batch_size,
            "seed": config.seed, "queries": config.queries,
        }  # fmt: skip
        command = [config.python, str(_ORIGINAL), str(data), config.original, json.dumps(options)]
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
        )
    if done.returncode:
        raise BenchError(f"the original failed: {done.stderr.strip()[-800:]}")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main(Config, run, show)
