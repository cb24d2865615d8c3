"""The robustness of adversarial training under AutoAttack: methods and objectives after the same number of epochs, and
one long training, each with several seeds.

A method is written `replay`, `replay+trades` or `replay+trades:3` (with another beta); other options may follow for it
alone, as in `replay,shift=1,learning_rate=2e-3`. Settings are chosen under attack on images held out from the training
(`--split validation`). Results are written after each training and after each of its attacks, and `--resume` continues
where an interrupted run was. With `--weights DIR` the networks are kept, so that they can be attacked later
(`--no-evaluate` first, then `--resume`), also on another machine, and by `benchmarks.autoattack`.
The defaults are for MNIST on a GPU (`--data DIR`), where the long training has a goal; `--source digits` is a small
version for a CPU.
"""

import dataclasses
import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.weights import in_half, load_network, rounded, save_network
from lapwing.attacks import Attack, AutoAttack, Share
from lapwing.bench.measure import BenchError, alternate, check_ended, check_parts, environment, main, save
from lapwing.core import format_seconds
from lapwing.experiments import adversarial
from lapwing.task import Task
from lapwing.train import FitResult, Schedule, Stop, fit

_SIZES = {
    # width, batch, validation images, pretrain, eps warm-up, evaluate every, decay of the average
    "mnist": (16, 256, 200, 200, 1000, 0, 0.999),
    "digits": (4, 64, 200, 100, 200, 0, 0.99),
    "cifar10": (8, 128, 1000, 400, 2000, 2000, 0.999),
}
_ATTACK_STEPS = {"pgd": 40, "replay": 5}
_STEPS_PER_CALL = 10
_GOAL = {"natural": 0.992, "robust": 0.93, "seconds": 300.0}  # Of the long training on MNIST, linf 0.3.


@dataclass(frozen=True)
class Config:
    """The robustness of adversarial training."""

    source: str = "mnist"
    """mnist, cifar10 or digits"""
    data: str = ""
    """the files of MNIST or CIFAR-10"""
    verify: bool = True
    """whether they must have the published checksums"""
    methods: tuple[str, ...] = ("natural", "replay", "pgd", "replay+trades", "replay+mart")
    """methods to compare, each with its objective and beta"""
    epochs: int = 10
    """epochs of the comparison"""
    long_epochs: int = 60
    """epochs of the long training; 0: none"""
    long_method: str = ""
    """method of the long training; empty: replay+trades:3, for MNIST with thresholds=4,shift=1"""
    long_steps: int = 10
    """attack steps of the long training"""
    batch_size: int = 0
    """images in a batch; 0: 256 for MNIST, 128 for CIFAR-10, 64 for digits"""
    width: int = 0
    """width factor of the network; 0: 16 for MNIST, 8 for CIFAR-10, 4 for digits"""
    norm: str = "linf"
    """norm of the perturbations"""
    eps: float = 0.0
    """their radius; 0: the usual one of the images and the norm"""
    train_eps: float = 1.0
    """radius of the attacks in the training, relative to that of the test"""
    attack_steps: int = 0
    """attack steps in the training; 0: 5 for replay, 40 for pgd"""
    shift: int = 0
    """shift training images by up to this many pixels"""
    learning_rate: float = 1e-3
    """peak of the cosine schedule"""
    ema: float = -1.0
    """decay of the averaged weights, which are evaluated; 0: none, -1: 0.999, for digits 0.99"""
    thresholds: int = 0
    """learned soft thresholds through which the network sees each pixel; 0: it sees the pixel"""
    seeds: tuple[int, ...] = (0, 1, 2)
    """seeds of the trainings"""
    evaluate: bool = True
    """attack the networks; without it they are only trained and kept"""
    weights: str = ""
    """folder in which the networks are kept; empty: none"""
    split: str = "test"
    """images to attack: test, or validation, to choose settings"""
    examples: int = 0
    """number of these images; 0: all"""
    attacks: tuple[str, ...] = ()
    """attacks to run; none: those of AutoAttack standard"""
    queries: int = 5000
    """queries of Square"""
    attacked_at_once: int = 500
    """images that are attacked at once; on a GPU 2500"""
    surrogate: bool = False
    """searches ask the network in bfloat16; the network itself decides what counts"""
    half: bool = False
    """round trained weights to float16, in which they are kept and attacked"""
    name: str = ""
    """name of the results; empty: robustness-SOURCE, with the norm if it is not linf"""
    resume: bool = False
    """keep the trainings that the results have already"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""

    def __post_init__(self) -> None:
        more = ",thresholds=4,shift=1" if self.source == "mnist" else ""
        object.__setattr__(self, "long_method", self.long_method or f"replay+trades:3{more}")


def run(config: Config) -> dict[str, Any]:
    """Trains and attacks each in turn."""
    check_parts([config.split], ["validation", "test"])
    results = _earlier(config) or {
        "environment": environment(),
        "config": _options(config),
        "compared": {},
    }
    attacks = {}
    for method in config.methods:
        for seed in config.seeds:
            rows = results["compared"].setdefault(method, [])
            attacks[method] = _row(config, results, rows, method, config.epochs, seed)
    timed = {method: attack for method, attack in attacks.items() if attack is not None}
    for method, seconds in alternate(timed, rounds=11).items():
        for row in results["compared"][method]:
            row["attack_seconds"] = seconds / _STEPS_PER_CALL
    if config.long_epochs:
        rows = results.setdefault("long", [])
        for seed in config.seeds:
            _row(config, results, rows, config.long_method, config.long_epochs, seed, config.long_steps)
    _save(results, config)
    return results


def _row(
    config: Config,
    results: dict[str, Any],
    rows: list[Any],
    method: str,
    epochs: int,
    seed: int,
    steps: int = 0,
) -> Callable[[], Any] | None:
    """Trains and attacks what the rows do not have yet. Returns the attacks of a call, if it was trained now."""
    row = next((row for row in rows if row["seed"] == seed), None)
    plan = plan_of(config, method, epochs, seed, steps)
    kept = Path(config.weights, f"{label_of(config, method, epochs, seed)}.npz")
    network, attack = None, None
    if row is None:
        row, network, attack = _trained(config, method, plan)
        row["epochs"] = epochs
        rows.append(row)
        network = in_half(network) if config.half else network
        if config.weights:
            save_network(network, kept, np.float16 if config.half else np.float32)
        _save(results, config)
    if config.evaluate and "robust" not in row:
        if network is None and not (config.weights and kept.exists()):
            raise BenchError(
                f"{method}, seed {seed}, is trained, but {kept.name} is not in the folder --weights"
            )
        row.update(_attacked(config, network or load_network(kept), plan, row["eps"]))
        _save(results, config)
    return attack


def label_of(config: Config, method: str, epochs: int, seed: int) -> str:
    """A name for the weights of a training.

    >>> label_of(Config(), "replay+trades:3,shift=1", 200, 0)
    'robustness-mnist-replay-trades-3-shift-1-200-0'
    """
    return re.sub("[^a-z0-9._]+", "-", f"{_name(config)}-{method}-{epochs}-{seed}")


def show(results: dict[str, Any]) -> None:
    """Prints the results: means over the seeds, and from the lowest to the highest."""
    long = {f"long: {results['config']['long_method']}": results["long"]} if results.get("long") else {}
    everything = {**results["compared"], **long}
    for name, rows in ((name, [row for row in rows if "robust" in row]) for name, rows in everything.items()):
        if not rows:
            continue
        shares = {kind: [row[kind]["accuracy"] for row in rows] for kind in ("natural", "robust")}
        timed = rows[0].get("attack_seconds")
        print(
            f"{name:24} {rows[0]['epochs']:4} epochs  natural {_spread(shares['natural'])}  "
            f"AutoAttack {_spread(shares['robust'])}  {format_seconds(statistics.mean(r['seconds'] for r in rows))}"
            + (f", attack {format_seconds(timed)} a step" if timed else "")
        )
    for row in results.get("long", []) if results["config"]["source"] == "mnist" else []:
        if "robust" in row:
            print(f"goal, seed {row['seed']}: {goal(row)}")


def goal(row: dict[str, Any]) -> str:
    """Whether a long training on MNIST reached what it should, with its numbers."""
    natural, robust, seconds = row["natural"]["accuracy"], row["robust"]["accuracy"], row["seconds"]
    met = natural >= _GOAL["natural"] and robust >= _GOAL["robust"] and seconds <= _GOAL["seconds"]
    asked = f"{_GOAL['natural']:.1%}, {_GOAL['robust']:.0%}, {_GOAL['seconds']:.0f} s"
    return f"{'reached' if met else 'not reached'}: {natural:.2%}, {robust:.2%}, {seconds:.0f} s (asked: {asked})"


def _spread(shares: list[float]) -> str:
    return f"{statistics.mean(shares):.1%} ({100 * min(shares):.1f} to {100 * max(shares):.1f})"


def _trained(
    config: Config, method: str, plan: adversarial.Config
) -> tuple[dict[str, Any], Any, Callable[[], Any] | None]:
    """A row without its robustness, the network, and the attacks of a call."""
    begin = time.perf_counter()
    task = adversarial.build(plan)
    result = fit(task, plan, quiet=True)
    check_ended(result, f"{method}, seed {plan.seed}")
    seconds = time.perf_counter() - begin
    _say(f"{method}, seed {plan.seed}, {plan.steps} steps: {format_seconds(seconds)}, {result.outcome}")
    row = {
        "method": method,
        "seed": plan.seed,
        "steps": plan.steps,
        "attack_steps": adversarial.training_attack(plan).steps,
        "norm": plan.attack.norm,
        "eps": plan.attack.eps / with_options(config, method)[1].train_eps,
        "train_eps": plan.attack.eps,
        "thresholds": plan.thresholds,
        "ema": plan.ema,
        "seconds": seconds,
        "compiling_seconds": result.times.compiling_seconds,
        "ended": result.outcome,
        "validation": dict(result.evaluation),
    }
    network = result.state.params if result.state.ema is None else result.state.ema
    return row, network, _attacks_of(task, result)


def _attacked(config: Config, network: Any, plan: adversarial.Config, eps: float) -> dict[str, Any]:
    """The rest of a row."""
    test = getattr(adversarial.splits_of(plan), config.split)
    some = slice(config.examples or None)
    attack = AutoAttack(
        eps,
        plan.attack.norm,
        attacks=config.attacks or None,
        queries=config.queries,
        batch_size=config.attacked_at_once,
    )
    found = attack(
        network,
        test.pixels(some),
        test.labels[some],
        jax.random.key(plan.seed + 1),
        surrogate=rounded(network) if config.surrogate else None,
    )
    count = len(found.natural)
    natural, robust = (Share(int(right.sum()), count) for right in (found.natural, found.robust))
    _say(
        f"  natural {natural}, AutoAttack {robust}, in {format_seconds(sum(found.seconds))} ({', '.join(found.names)})"
    )
    return {
        "natural": natural.to_json(),
        "robust": robust.to_json(),
        "accuracy_after": dict(zip(found.names, found.accuracy_after, strict=True)),
        "test_seconds": sum(found.seconds),
    }


def _attacks_of(task: Task, result: FitResult) -> Callable[[], Any] | None:
    """The attacks on the next batches, as many as in one call of the training, to be timed."""
    prepare = task.prepare
    if prepare is None:
        return None
    state = result.state

    def attack(_: None, number: jax.Array) -> tuple[None, jax.Array]:
        key = jax.random.fold_in(jax.random.key(0), number)
        batch = task.data(key, state.step + number, state.memory)
        found = prepare(state.params, batch, key)
        return None, jnp.sum(found.images) + jnp.sum(found.deltas)

    return jax.jit(lambda: jax.lax.scan(attack, None, jnp.arange(_STEPS_PER_CALL)))


def plan_of(config: Config, written: str, epochs: int, seed: int, steps: int = 0) -> adversarial.Config:
    """The training of a method as it is written, such as `replay+trades:3,shift=1`."""
    written, config = with_options(config, written)
    method, _, objective = written.partition("+")
    objective, _, beta = objective.partition(":")
    width, batch, validation, pretrain, warmup, every, decay = _SIZES[config.source]
    batch = config.batch_size or batch
    source: Any = config.source
    norm: Any = config.norm
    count = len(adversarial.load_images(source, config.data, verify=config.verify).train.labels)
    chosen: Any = {"method": method, "objective": objective or "cross_entropy", "source": source}
    return adversarial.Config(
        **chosen,
        beta=float(beta or 0),
        steps=epochs * (count // batch),
        learning_rate=config.learning_rate,
        schedule=Schedule("cosine", warmup=pretrain),
        ema=decay if config.ema < 0 else config.ema,
        seed=seed,
        steps_per_call=_STEPS_PER_CALL,
        laps_every=0,
        evaluate_every=every,
        stop=Stop(),  # The same number of steps for all.
        attack=Attack(
            eps=config.train_eps * (config.eps or adversarial.usual_eps(source, norm)),
            norm=norm,
            steps=steps or config.attack_steps or _ATTACK_STEPS.get(method, 1),
        ),
        data=config.data,
        verify=config.verify,
        width=config.width or width,
        thresholds=config.thresholds,
        batch_size=batch,
        pretrain=pretrain,
        eps_warmup=warmup,
        shift=config.shift,
        validation=validation,
    )


def with_options(config: Config, written: str) -> tuple[str, Config]:
    """The method alone, and the options with those that are written after it.

    >>> method, config = with_options(Config(), "replay+mart,shift=1")
    >>> method, config.shift
    ('replay+mart', 1)
    """
    method, *options = written.split(",")
    values = dict(option.split("=", 1) for option in options)
    kinds = {field.name: type(field.default) for field in dataclasses.fields(config)}
    check_parts(values, [name for name, kind in kinds.items() if kind in (int, float)])
    return method, dataclasses.replace(config, **{name: kinds[name](value) for name, value in values.items()})


def _name(config: Config) -> str:
    return config.name or f"robustness-{config.source}" + ("" if config.norm == "linf" else f"-{config.norm}")


def _earlier(config: Config) -> dict[str, Any] | None:
    path = Path(config.out, f"{_name(config)}-{jax.default_backend()}.json")
    if not (config.resume and config.out and path.exists()):
        return None
    found = json.loads(path.read_text())
    parts = {"resume": False, "methods": None, "seeds": None, "evaluate": True}
    if {**json.loads(json.dumps(_options(config))), **parts} != {**found["config"], **parts}:
        raise ValueError(f"{path} was measured with other options; leave out --resume")
    return {**found, "config": _options(config)}


def _options(config: Config) -> dict[str, Any]:
    """The options without the places on this machine."""
    return {**dataclasses.asdict(config), "data": "", "out": "", "weights": ""}


def _save(results: dict[str, Any], config: Config) -> None:
    save(json.loads(json.dumps(results, default=np.ndarray.tolist)), _name(config), config.out)


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(Config, run, show)
