"""AutoAttack beside the original: accuracy under each attack on the same weights, and the time of both.

Three networks are trained, for MNIST (`--data DIR`) or 8×8 digits: `natural`, `replay` (adversarially, in the norm of
the attack, as `lapwing train adversarial` does) and `weak` (with a smaller ball and half the steps). Each attack runs
on all images alone, by Lapwing and by the original, which needs PyTorch and so runs in a process of its own: `--python`
is an interpreter that has it, `--original` a checkout of github.com/fra31/auto-attack. Without these only Lapwing runs.

A network may also be a file of weights, as `benchmarks.robust --weights` keeps them, which is attacked like `replay`.

Lapwing and the original take turns, network by network, norm by norm and seed by seed; results are written after each,
and `--resume` continues, also with the original for rows that were measured without it. Beside the accuracies are the
numbers of images that fell to one of the two only: two seeds of one program differ in such images too. On a CPU seconds
are of the processor, all threads together, so that other work on the machine changes them little; on a GPU they are of
the clock.
"""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.autoattack_networks import SOURCES, images_of, network_of
from benchmarks.weights import arrays_of, rounded
from lapwing.attacks import AutoAttack
from lapwing.bench.measure import BenchError, check_parts, environment, main, save
from lapwing.core import replace_file
from lapwing.models import Cnn

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
    """networks to attack: natural, replay, weak, or files of weights"""
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
    """of the products on a GPU, of both: float32 or tensorfloat32; or bfloat16, which is tensorfloat32 for all but
    Lapwing's searches without FAB; float32 decides what fell"""
    seeds: tuple[int, ...] = (0,)
    """seeds of the attacks, of both"""
    weights: str = ""
    """folder in which trained networks, and what the original has found, are kept between runs; empty: none"""
    standard: bool = False
    """also run all attacks in turn, each on the images that are left, as a user does, to time it; Lapwing only"""
    name: str = "autoattack"
    """name of the results"""
    resume: bool = False
    """keep the rows that the results have already, and what the folder of weights has of others"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""

    @property
    def source(self) -> Literal["mnist", "digits"]:
        return "mnist" if self.data else "digits"


class _Problem(NamedTuple):
    """A network and a ball, and all that both are told of it."""

    name: str
    norm: Any
    eps: float
    seed: int
    network: Cnn
    images: np.ndarray
    labels: np.ndarray


def run(config: Config) -> dict[str, Any]:
    """Attacks each network with each norm, by both in turn."""
    source = SOURCES[config.source]
    check_parts([name for name in config.networks if not name.endswith(".npz")], source.trainings)
    jax.config.update("jax_default_matmul_precision", "float32")
    results = _earlier(config)
    done = [(row["network"], row["norm"], row["seed"]) for row in results["rows"] if _complete(config, row)]
    images, labels = images_of(config)
    wanted = [
        (name, norm, seed) for norm in config.norms for name in config.networks for seed in config.seeds
    ]
    with tempfile.TemporaryDirectory() as temporary:
        for name, norm, seed in wanted:
            called = Path(name).stem
            if (called, norm, seed) in done:
                continue
            network, eps = network_of(config, name, norm), source.radius(name, norm)
            problem = _Problem(called, norm, eps, seed, network, images, labels)
            row = _row(config, problem, Path(config.weights or temporary))
            rows = {(row["network"], row["norm"], row["seed"]): row for row in results["rows"]}
            results["rows"] = [*{**rows, (called, norm, seed): row}.values()]
            _show_row(row, sys.stderr)
            save(results, config.name, config.out)
    return results


def _complete(config: Config, row: dict[str, Any]) -> bool:
    return bool(row["original"]) or not config.python


def _earlier(config: Config) -> dict[str, Any]:
    """The results to continue, or new ones."""
    path = Path(config.out, f"{config.name}-{jax.default_backend()}.json")
    machine = ("python", "original", "data", "weights", "out", "resume")
    options = {**dataclasses.asdict(config), **dict.fromkeys(machine, ""), "source": config.source}
    options["networks"] = [Path(name).stem for name in config.networks]
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


def _row(config: Config, problem: _Problem, folder: Path) -> dict[str, Any]:
    said = [config.images, config.attacks, config.queries, config.positions, config.precision, problem.eps]
    weights = b"".join(values.tobytes() for values in arrays_of(problem.network).values())
    code = hashlib.sha256(json.dumps(said).encode() + weights).hexdigest()[:8]
    label = f"{problem.name}-{problem.norm}-{problem.seed}-{code}"
    paths = [folder / f"{label}-{who}.json" for who in ("lapwing", "original")]
    if not config.resume:
        for path in paths:
            path.unlink(missing_ok=True)
    ours = _once(paths[0], lambda: _ours(config, problem))
    theirs = _theirs(config, problem, paths[1]) if config.python else None
    fell, their_fell = ours.pop("fell"), theirs.pop("fell") if theirs else None
    row = {"network": problem.name, "norm": problem.norm, "eps": problem.eps, "seed": problem.seed}
    row |= {"lapwing": ours, "original": theirs}
    if their_fell:
        row["fell_to_one_only"] = {
            attack: [_count(fell[attack], their_fell[attack]), _count(their_fell[attack], fell[attack])]
            for attack in fell
        }
    return row


def _once(path: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the file has, or else what is measured, which is then written."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(measure()))
    return json.loads(path.read_text())


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


def _ours(config: Config, problem: _Problem) -> dict[str, Any]:
    """Accuracies and seconds of each attack alone; they have run before, so that nothing is compiled."""
    _, norm, eps, seed, network, images, labels = problem
    key = jax.random.key(seed)
    positions: Any = config.positions
    attack = AutoAttack(
        eps,
        norm,
        attacks=tuple(config.attacks),
        batch_size=config.batch_size,
        queries=config.queries,
        positions=positions,
        deterministic=True,  # The first call, with few images, compiles for all.
    )
    alone = {name: dataclasses.replace(attack, attacks=(name,)) for name in attack.names}
    found: dict[str, Any] = {"accuracy": {}, "seconds": {}}
    right = _right(config, problem, images)
    robust, fell, furthest = right.copy(), {}, []
    surrogate = jax.tree_util.Partial(_scores, rounded(network)) if config.precision == "bfloat16" else None
    precision = "tensorfloat32" if surrogate else config.precision
    with jax.default_matmul_precision(precision):
        found["compiling_seconds"] = _compile(list(alone.values()), problem, surrogate, precision)
        print(f"{problem.name}: compiled in {found['compiling_seconds']:.0f} s", file=sys.stderr, flush=True)
        if config.standard:
            begin = _clock()
            attacked = attack(network, images, labels, key, surrogate=surrogate)
            found["standard"] = {"seconds": _clock() - begin, "accuracy": float(attacked.robust.mean())}
            print(f"{problem.name}: standard {found['standard']}", file=sys.stderr, flush=True)
        for name, one in alone.items():
            begin = _clock()
            attacked = one(network, images, labels, key, surrogate=surrogate)
            found["seconds"][name] = _clock() - begin
            held = right & _right(config, problem, attacked.images)
            robust &= held
            fell[name], found["accuracy"][name] = (~held).tolist(), float(held.mean())
            furthest.append(_furthest(norm, attacked.images - images))
            print(f"{problem.name}: {name} {held.mean():.2%}", file=sys.stderr, flush=True)
    fell["total"], found["accuracy"]["total"] = (~robust).tolist(), float(robust.mean())
    return {**found, "natural": float(right.mean()), "furthest": max(furthest), "fell": fell}


def _clock() -> float:
    """Seconds of the processor, or with a GPU of the clock."""
    return time.process_time() if jax.default_backend() == "cpu" else time.perf_counter()


def _scores(network: Cnn, images: Any) -> Any:
    return network(images)


def _compile(attacks: list[AutoAttack], problem: _Problem, surrogate: Any, precision: str) -> float:
    """Seconds until all attacks are compiled, at once."""

    def first(attack: AutoAttack) -> None:
        # All images fall at once in a ball this large, and its size is not compiled in.
        wide = dataclasses.replace(attack, eps=100 * attack.eps)
        some = problem.images[:2], problem.labels[:2], jax.random.key(problem.seed)
        with jax.default_matmul_precision(precision):  # Of this thread.
            wide(problem.network, *some, surrogate=surrogate)

    begin = time.perf_counter()
    with ThreadPoolExecutor() as threads:
        list(threads.map(first, attacks))
    return time.perf_counter() - begin


def _right(config: Config, problem: _Problem, images: np.ndarray) -> np.ndarray:
    """Which images the network has right, in float32."""
    size = config.batch_size
    with jax.default_matmul_precision("float32"):
        scores = [
            problem.network(jnp.asarray(images[first : first + size]))
            for first in range(0, len(images), size)
        ]
    return np.argmax(np.concatenate(scores), axis=1) == problem.labels


def _furthest(norm: str, deltas: np.ndarray) -> float:
    """The length of the longest perturbation."""
    rows = np.abs(deltas.reshape(len(deltas), -1).astype(np.float64))
    lengths = {"linf": rows.max(1), "l2": np.sqrt((rows**2).sum(1)), "l1": rows.sum(1)}
    return float(lengths[norm].max())


def _theirs(config: Config, problem: _Problem, path: Path) -> dict[str, Any]:
    """The same by the original, which adds each attack to the file, and continues with those that it does not have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "problem.npz"
        np.savez(
            data,
            images=problem.images,
            labels=problem.labels,
            scores=np.asarray(problem.network(jnp.asarray(problem.images))),
            **arrays_of(problem.network),  # pyright: ignore[reportArgumentType]
        )
        options = {
            "norm": problem.norm, "eps": problem.eps, "attacks": list(config.attacks), "seed": problem.seed,
            "batch_size": config.batch_size, "queries": config.queries, "precision": config.precision,
        }  # fmt: skip
        command = [config.python, str(_ORIGINAL), str(data), config.original, json.dumps(options), str(path)]
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
        )  # fmt: skip
    if done.returncode:
        raise BenchError(f"the original failed: {done.stderr.strip()[-800:]}")
    return json.loads(path.read_text())


if __name__ == "__main__":
    main(Config, run, show)
