"""AutoAttack beside the original: accuracy under each attack on the same weights, and the time of both.

Three networks are trained, for MNIST (`--data DIR`) or 8×8 digits: `natural`, `replay` (adversarially, in the norm of
the attack, as `lapwing train adversarial` does) and `weak` (with a smaller ball and half the steps). Each attack runs
on all images alone, by Lapwing and by the original, which needs PyTorch and so runs in a process of its own: `--python`
is an interpreter that has it, `--original` a checkout of github.com/fra31/auto-attack. Without these only Lapwing runs.

Lapwing and the original take turns, network by network, norm by norm and seed by seed; results are written after each,
and `--resume` continues. Beside the accuracies are the numbers of images that fell to one of the two only: two seeds of
one program differ in such images too. On a CPU seconds are of the processor, all threads together, so that other work
on the machine changes them little; on a GPU they are of the clock.
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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.attacks import Attack, AutoAttack
from lapwing.bench.measure import BenchError, check_ended, check_parts, environment, main, save
from lapwing.data import load_images
from lapwing.experiments import adversarial
from lapwing.models import Cnn
from lapwing.train import fit


class _Source(NamedTuple):
    """What is trained on some images, and attacked with which radius."""

    eps: dict[str, float]
    """of the network that is trained adversarially, by norm"""
    attacked: dict[str, float]
    """radius of the attacks on each network, as a share of that: neither do all images fall nor none"""
    trainings: dict[str, tuple[adversarial.Method, float, float]]
    """method, its radius as a share of eps, and share of the steps"""
    warmup: int = 200
    """steps in which the radius of the training rises"""


_TRAININGS: dict[str, tuple[adversarial.Method, float, float]] = {
    "natural": ("natural", 1.0, 0.5),
    "replay": ("replay", 1.0, 1.0),
    "weak": ("replay", 0.4, 0.5),
}
_SOURCES = {
    "digits": _Source({"linf": 0.1, "l2": 0.5, "l1": 2.0}, dict.fromkeys(_TRAININGS, 1.0), _TRAININGS),
    "mnist": _Source(
        {"linf": 0.3, "l2": 2.0, "l1": 10.0},
        {"natural": 1 / 3, "replay": 1.0, "weak": 2 / 3},
        _TRAININGS,
        warmup=1000,
    ),
}
_ORIGINAL = Path(__file__).with_name("autoattack_original.py")


@dataclass(frozen=True)
class Config:
    """AutoAttack beside the original, on the same weights."""

    python: str = ""
    """Python with PyTorch, for the original; empty: only Lapwing"""
    original: str = ""
    """checkout of the original"""
    data: str = ""
    """folder with the files of MNIST; empty: 8×8 digits"""
    networks: tuple[str, ...] = ("natural", "replay", "weak")
    """networks to attack"""
    norms: tuple[str, ...] = ("linf",)
    """norms"""
    attacks: tuple[str, ...] = ("apgd-ce", "apgd-t", "fab-t", "square")
    """attacks, each on all images"""
    images: int = 1000
    """number of images: the first test images, and for digits others after them"""
    width: int = 2
    """width factor of the networks"""
    steps: int = 1000
    """training steps"""
    train_batch: int = 64
    """images in a step of the training"""
    batch_size: int = 250
    """images attacked at once, by both; on a GPU 2500 and more"""
    queries: int = 5000
    """queries of square"""
    positions: str = "original"
    """where Lapwing's Square has its windows: original or all"""
    precision: str = "float32"
    """of Lapwing's products on a GPU: float32, as in the original, or tensorfloat32, which is faster"""
    seeds: tuple[int, ...] = (0,)
    """seeds of the attacks, of both"""
    weights: str = ""
    """folder in which trained networks are kept between runs; empty: none"""
    name: str = "autoattack"
    """name of the results"""
    resume: bool = False
    """keep the rows that the results have already"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""


def run(config: Config) -> dict[str, Any]:
    """Attacks each network with each norm, by both in turn."""
    check_parts(config.networks, _source(config).trainings)
    jax.config.update("jax_default_matmul_precision", config.precision)
    results = _earlier(config)
    images, labels = _images(config)
    done = [(row["network"], row["norm"], row["seed"]) for row in results["rows"]]
    for norm in map(str, config.norms):
        for name in config.networks:
            for seed in config.seeds:
                if (name, norm, seed) in done:
                    continue
                row = _row(config, name, norm, seed, images, labels)
                results["rows"].append(row)
                _show_row(row, sys.stderr)
                save(results, config.name, config.out)
    return results


def _earlier(config: Config) -> dict[str, Any]:
    """The results to continue, or new ones."""
    path = Path(config.out, f"{config.name}-{jax.default_backend()}.json")
    machine = ("python", "original", "data", "weights", "out", "resume")
    options = {
        **dataclasses.asdict(config),
        **dict.fromkeys(machine, ""),
        "source": "mnist" if config.data else "digits",
    }
    fresh = {
        "environment": environment(),
        "config": json.loads(json.dumps(options)),
        "points_per_image": 100 / config.images,
        "rows": [],
    }
    if not (config.resume and config.out and path.exists()):
        return fresh
    found = json.loads(path.read_text())
    parts = dict.fromkeys(("networks", "norms", "seeds"))
    if {**found["config"], **parts} != {**fresh["config"], **parts}:
        raise BenchError(f"{path} was measured with other options; leave out --resume")
    return {**found, "config": fresh["config"]}


def _row(
    config: Config, name: str, norm: str, seed: int, images: np.ndarray, labels: np.ndarray
) -> dict[str, Any]:
    source = _source(config)
    network = _network(config, name, norm)
    eps = round(source.attacked[name] * source.eps[norm], 3)
    problem = network, images, labels, norm, eps, seed
    ours = _ours(config, *problem)
    theirs = _theirs(config, *problem) if config.python else None
    fell, their_fell = ours.pop("fell"), theirs.pop("fell") if theirs else None
    row = {"network": name, "norm": norm, "eps": eps, "seed": seed, "lapwing": ours, "original": theirs}
    if their_fell:
        row["fell_to_one_only"] = {
            attack: [_count(fell[attack], their_fell[attack]), _count(their_fell[attack], fell[attack])]
            for attack in fell
        }
    return row


def _count(fell: list[bool], other: list[bool]) -> int:
    """The number of images that fell to the first and not to the other."""
    return int(np.sum(np.array(fell) & ~np.array(other)))


def show(results: dict[str, Any]) -> None:
    """Prints the accuracies of both, and the seconds."""
    for row in results["rows"]:
        _show_row(row, sys.stdout)


def _show_row(row: dict[str, Any], where: Any) -> None:
    ours, theirs = row["lapwing"], row["original"]
    print(
        f"{row['network']}, {row['norm']} {row['eps']:g}, seed {row['seed']}: natural {ours['natural']:.2%}",
        file=where,
    )
    for name in [*ours["seconds"], "total"]:
        cells = [
            f"{found['accuracy'][name]:8.2%} {found['seconds'].get(name, np.nan):8.2f} s"
            for found in (ours, theirs)
            if found
        ]
        only = row.get("fell_to_one_only", {}).get(name)
        said = "" if only is None else f"   fell here only {only[0]}, there only {only[1]}"
        print(f"  {name:9}" + "   ".join(cells) + said, file=where, flush=True)


def _source(config: Config) -> _Source:
    return _SOURCES["mnist" if config.data else "digits"]


def _images(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """The test images first, then for digits those of validation and training: what is compared is the attacks."""
    splits, count = load_images("mnist" if config.data else "digits", config.data), config.images
    parts = (splits.test,) if config.data else (splits.test, splits.validation, splits.train)
    images = np.concatenate([np.asarray(part.pixels()) for part in parts])
    return images[:count], np.concatenate([part.labels for part in parts])[:count]


def _network(config: Config, name: str, norm: Any) -> Cnn:
    source = _source(config)
    method, radius, share = source.trainings[name]
    norm = "linf" if method == "natural" else norm
    label = f"{'mnist' if config.data else 'digits'}-{name}-{norm}-w{config.width}-{config.steps}x{config.train_batch}"
    kept = Path(config.weights) / f"{label}.npz" if config.weights else None
    shape = (28, 28, 1) if config.data else (8, 8, 1)
    blank = Cnn.init(jax.random.key(0), shape, config.width)
    if kept is not None and kept.exists():
        with np.load(kept) as arrays:
            return jax.tree.unflatten(
                jax.tree.structure(blank), [jnp.asarray(arrays[key]) for key in _fields(blank)]
            )
    plan = adversarial.Config(
        source="mnist" if config.data else "digits",
        data=config.data,
        method=method,
        attack=Attack(eps=radius * source.eps[norm], norm=norm, steps=5),
        width=config.width,
        batch_size=config.train_batch,
        steps=int(share * config.steps),
        pretrain=300,
        eps_warmup=source.warmup,
        evaluate_every=0,
    )
    result = fit(adversarial.build(plan), plan, quiet=True)
    check_ended(result, label)
    network: Any = result.params
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.savez(kept, **_arrays(network))  # pyright: ignore[reportArgumentType]
    return network


def _fields(network: Cnn) -> list[str]:
    return [field.name for field in dataclasses.fields(network)]


def _arrays(network: Cnn) -> dict[str, np.ndarray]:
    return {name: np.asarray(getattr(network, name)) for name in _fields(network)}


def _ours(
    config: Config, network: Cnn, images: np.ndarray, labels: np.ndarray, norm: Any, eps: float, seed: int
) -> dict[str, Any]:
    """Accuracies and processor seconds; the attacks have run before, so that nothing is compiled."""
    positions: Any = config.positions
    attack = AutoAttack(
        eps,
        norm,
        attacks=tuple(config.attacks),
        batch_size=config.batch_size,
        individually=True,
        queries=config.queries,
        positions=positions,
        deterministic=True,  # The first call, with few images, compiles for all.
    )
    begin = time.perf_counter()
    # All images fall at once in a ball this large, and its size is not compiled in.
    dataclasses.replace(attack, eps=100 * eps)(network, images[:2], labels[:2], jax.random.key(seed))
    first = time.perf_counter() - begin
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    stamps, states = [clock()], []

    def note(state: dict[str, np.ndarray]) -> None:
        stamps.append(clock())
        states.append(state)

    found = attack(network, images, labels, jax.random.key(seed), on_attack=note)
    fell = dict(zip(found.names, (row | ~found.natural for row in states[-1]["fell_alone"]), strict=True))
    fell["total"] = ~found.robust
    furthest = {"linf": np.max, "l2": lambda x: np.sqrt(np.sum(x**2)), "l1": np.sum}[norm]
    assert found.alone is not None
    return {
        "natural": float(found.natural.mean()),
        "accuracy": dict(zip(found.names, found.alone, strict=True)) | {"total": float(found.robust.mean())},
        "seconds": dict(zip(found.names, np.diff(stamps).tolist(), strict=True)),
        "compiling_seconds": first,
        "fell": {name: flags.tolist() for name, flags in fell.items()},
        "furthest": float(max(furthest(np.abs(x)) for x in (found.images - images).astype(np.float64))),
    }


def _theirs(
    config: Config, network: Cnn, images: np.ndarray, labels: np.ndarray, norm: str, eps: float, seed: int
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "problem.npz"
        np.savez(
            data,
            images=images,
            labels=labels,
            scores=np.asarray(network(jnp.asarray(images))),
            **_arrays(network),  # pyright: ignore[reportArgumentType]
        )
        options = {
            "norm": norm, "eps": eps, "attacks": list(config.attacks), "batch_size": config.batch_size,
            "seed": seed, "queries": config.queries,
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
