"""The robustness of adversarial training: methods after the same number of epochs, and one long training.

The methods are compared under PGD with 100 steps and two restarts; the long training, under 50 restarts, is the one to
report. Results are written after each training. The defaults are for MNIST on a GPU (`--data DIR`); `--source digits`
is a small version for a CPU.
"""

import dataclasses
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from lapwing.attacks import Attack, strong
from lapwing.bench.measure import alternate, environment, main, save
from lapwing.core import format_seconds
from lapwing.experiments import adversarial
from lapwing.experiments._adversarial_evaluation import CURVE, Evaluation, evaluate, pictures
from lapwing.task import Task
from lapwing.train import FitResult, Schedule, Stop, fit

_FEW_RESTARTS = 2
_SIZES = {
    # width, batch, validation images, eps, pretrain, eps warm-up, evaluate every
    "mnist": (16, 256, 1000, 0.3, 200, 1000, 2000),
    "digits": (4, 64, 200, 0.15, 100, 200, 0),
}
_ATTACK_STEPS = {"pgd": 40, "replay": 5}
_STEPS_PER_CALL = 10


@dataclass(frozen=True)
class Config:
    """The robustness of adversarial training."""

    source: str = "mnist"
    """mnist or digits"""
    data: str = ""
    """folder with MNIST's four files"""
    methods: tuple[str, ...] = ("natural", "replay", "pgd")
    """methods to compare"""
    epochs: int = 10
    """epochs of the comparison"""
    long_epochs: int = 80
    """epochs of the long training; 0: none"""
    long_method: str = "replay"
    """method of the long training"""
    width: int = 0
    """width factor of the network; 0: 16 for MNIST, 4 for digits"""
    learning_rate: float = 1e-3
    """peak of the cosine schedule"""
    seed: int = 0
    """seed of the trainings"""
    steps: int = 100
    """steps of the final attack"""
    restarts: int = 50
    """restarts of the final attack on the long training"""
    curve_examples: int = 2000
    """images of the curve over eps"""
    out: str = "benchmarks/results"
    """folder for the results as JSON and pictures; empty for none"""


def run(config: Config) -> dict[str, Any]:
    """Trains and attacks each in turn."""
    results: dict[str, Any] = {
        "environment": environment(),
        "config": dataclasses.asdict(config),
        "compared": {},
    }
    attacks = {}
    for method in config.methods:
        results["compared"][method], _, attacks[method] = _trained(
            config, method, config.epochs, _FEW_RESTARTS
        )
        _save(results, config)
    for method, seconds in alternate(attacks, rounds=11).items():
        results["compared"][method]["attack_seconds"] = seconds / _STEPS_PER_CALL
    _save(results, config)
    if config.long_epochs:
        row, found, _ = _trained(config, config.long_method, config.long_epochs, config.restarts)
        results["long"] = row
        _save(results, config, found)
    return results


def show(results: dict[str, Any]) -> None:
    """Prints the results."""
    rows = {**results["compared"], **({"long": results["long"]} if "long" in results else {})}
    for name, row in rows.items():
        times = f"{format_seconds(row['seconds'])}, attack {format_seconds(row.get('attack_seconds'))} a step"
        print(
            f"{name:8} {row['method']:8} {row['epochs']:4} epochs  natural {_percent(row['test']['natural'])}  "
            f"{row['test_attack']} {_percent(row['test']['robust'])}  {times}"
        )


def _percent(share: dict[str, Any]) -> str:
    low, high = share["interval"]
    return f"{share['accuracy']:.2%} ({100 * low:.1f} to {100 * high:.1f})"


def _trained(
    config: Config, method: str, epochs: int, restarts: int
) -> tuple[dict[str, Any], Evaluation, Callable[[], Any]]:
    plan = _plan(config, method, epochs)
    begin = time.perf_counter()
    task = adversarial.build(plan)
    result = fit(task, plan, quiet=True)
    seconds = time.perf_counter() - begin
    _say(f"{method}, {epochs} epochs: {format_seconds(seconds)}, {result.outcome}")
    test = adversarial.splits_of(plan).test
    begin = time.perf_counter()
    attack = strong(plan.attack.eps, steps=config.steps, restarts=restarts)
    network, key = result.params, jax.random.key(config.seed + 1)
    found = evaluate(network, test.pixels(), test.labels, attack, key, curve=())
    few = slice(config.curve_examples)
    if restarts > _FEW_RESTARTS:
        curve = evaluate(
            network,
            test.pixels(few),
            test.labels[few],
            dataclasses.replace(attack, restarts=_FEW_RESTARTS),
            key,
            curve=CURVE,
        )
        found = dataclasses.replace(found, curve=curve.curve)
    attacked = time.perf_counter() - begin
    _say(f"  natural {found.found.natural}, robust {found.found.robust}, in {format_seconds(attacked)}")
    row = {
        "method": method,
        "epochs": epochs,
        "steps": plan.steps,
        "seconds": seconds,
        "compiling_seconds": result.times.compiling_seconds,
        "ended": result.outcome,
        "validation": dict(result.evaluation),
        "test": found.to_json(),
        "test_attack": f"PGD-{attack.steps}, {restarts} restarts",
        "test_seconds": attacked,
    }
    return row, found, _attacks_of(task, result)


def _attacks_of(task: Task, result: FitResult) -> Callable[[], Any]:
    """The attacks on the next batches, as many as in one call of the training, to be timed."""
    prepare = task.prepare
    if prepare is None:
        return lambda: None
    state = result.state

    def attack(_: None, number: jax.Array) -> tuple[None, jax.Array]:
        key = jax.random.fold_in(jax.random.key(0), number)
        batch = task.data(key, state.step + number, state.memory)
        found = prepare(state.params, batch, key)
        return None, jnp.sum(found.images) + jnp.sum(found.deltas)

    return jax.jit(lambda: jax.lax.scan(attack, None, jnp.arange(_STEPS_PER_CALL)))


def _plan(config: Config, method: str, epochs: int) -> adversarial.Config:
    width, batch, validation, eps, pretrain, warmup, every = _SIZES[config.source]
    count = len(adversarial.load_digits(config.source, config.data).train.labels)  # pyright: ignore[reportArgumentType]
    return adversarial.Config(
        steps=epochs * (count // batch),
        learning_rate=config.learning_rate,
        schedule=Schedule("cosine", warmup=pretrain),
        seed=config.seed,
        steps_per_call=_STEPS_PER_CALL,
        laps_every=0,
        evaluate_every=every,
        stop=Stop(),  # The same number of steps for all.
        method=method,  # pyright: ignore[reportArgumentType]
        attack=Attack(eps=eps, steps=_ATTACK_STEPS.get(method, 1)),
        source=config.source,  # pyright: ignore[reportArgumentType]
        data=config.data,
        width=config.width or width,
        batch_size=batch,
        pretrain=pretrain,
        eps_warmup=warmup,
        validation=validation,
    )


def _save(results: dict[str, Any], config: Config, found: Evaluation | None = None) -> None:
    path = save(results, f"robust-{config.source}", config.out)
    if path is None or found is None:
        return
    for name, content in pictures(found).items():
        Path(path.parent, f"{path.stem}-{name}").write_bytes(content)


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(Config, run, show)
