"""Ways to reduce mixed functions to one function a neuron, compared from the same starts.

    python -m benchmarks.superfluid                     # 12 ways, 3 starts each
    python -m benchmarks.superfluid --ways none-trial-4 pairs-largest-4 --starts 2

A way is a penalty of the mixes, a choice of the function to keep, and the number of rounds in which neurons are reduced
to one. All ways and starts are rows of one population: each row is trained for the same steps, with its own penalty in
the second half, then its neurons are reduced, with training after each of four rounds, and trained on. The result is
the squared error at the end, where every neuron has one function and no link is pruned yet.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lapwing import dmm
from lapwing.bench.measure import check_parts, environment, main, save
from lapwing.experiments.superfluid_synthesis import Config as Experiment
from lapwing.synthesis import Examples
from lapwing.synthesis._corners import CORNERS, Choice, Corner
from lapwing.synthesis._fluid import Fluid

WEIGHTS = {"none": 0.0, "entropy": 1.0, "pairs": 1.0, "lasso": 0.1, "loop": 1.0}
WAYS = (
    *(f"none-{choice}-{rounds}" for choice, rounds in product(get_args(Choice), (1, 4))),
    *(f"{corner}-{choice}-4" for corner, choice in product(get_args(Corner)[1:], get_args(Choice))),
)

ROUNDS = 4  # of reducing neurons; a way of 1 round does it all in the first


@dataclass(frozen=True)
class Config:
    """Ways to reduce mixed functions to one function a neuron."""

    ways: tuple[str, ...] = WAYS
    """penalty-choice-rounds"""
    starts: int = 3
    """random starts, the same for every way"""
    seed: int = 200
    """decides the starts"""
    train_steps: int = 500
    """steps before the first neuron is reduced; the second half has the penalty"""
    round_steps: int = 100
    """steps after each round"""
    settle_steps: int = 300
    """steps after the last round"""
    layers: int = 4
    """layers of the student"""
    width: int = 4
    """fluid neurons in a layer"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""


def run(config: Config) -> dict[str, Any]:
    check_parts(config.ways, WAYS)
    experiment = Experiment()
    fluid = _fluid(config, experiment)
    ways = [way.split("-") for way in config.ways for _ in range(config.starts)]
    start = (experiment.spread, experiment.mix, experiment.memory)
    leaves = jnp.tile(fluid.start(jax.random.key(config.seed), config.starts, *start), (len(config.ways), 1))
    weights = np.array([WEIGHTS[corner] for corner, *_ in ways], np.float32)
    begin, cpu = time.perf_counter(), time.process_time()
    steps = _steps(fluid, [corner for corner, *_ in ways], experiment)
    kept = np.ones(leaves.shape, bool)
    half = config.train_steps // 2
    leaves = steps(leaves, kept, 0 * weights, half)
    leaves = steps(leaves, kept, weights, config.train_steps - half)
    mixed, shares = _errors(fluid, leaves, kept), fluid.shares(np.asarray(leaves))
    _say(f"trained: {mixed.round(3).tolist()}")
    for number in range(ROUNDS):
        for k, (_, choice, rounds) in enumerate(ways):
            count = -(-len(fluid.names) // int(rounds))
            if len(fluid.undecided(kept[k])):
                kept[k] = fluid.decide(_choice(choice), np.asarray(leaves[k]), kept[k], count)
        leaves = steps(leaves * kept, kept, weights, config.round_steps)
        errors = _errors(fluid, leaves, kept)
        _say(f"round {number + 1}: {errors.round(3).tolist()}")
    leaves = steps(leaves, kept, 0 * weights, config.settle_steps)
    errors = _errors(fluid, leaves, kept)
    results = {
        "environment": environment(),
        "config": {key: value for key, value in asdict(config).items() if key != "out"},
        "seconds": time.perf_counter() - begin,
        "processor_seconds": time.process_time() - cpu,
        "rows": _rows(config, weights, mixed, np.array(shares), errors),
    }
    save(results, "superfluid-ways", config.out)
    return results


def _rows(
    config: Config, weights: np.ndarray, mixed: np.ndarray, shares: np.ndarray, errors: np.ndarray
) -> Any:
    """The results way by way."""
    split = [each.reshape(len(config.ways), config.starts) for each in (weights, mixed, shares, errors)]
    return [
        {
            "way": way,
            "weight": float(weight[0]),
            "mixed_errors": trained.tolist(),
            "largest_share": float(share.mean()),
            "errors": ended.tolist(),
            "median": float(np.median(ended)),
        }
        for way, weight, trained, share, ended in zip(config.ways, *split, strict=True)
    ]


def show(results: dict[str, Any]) -> None:
    """Prints a table."""
    print(f"{'way':<20} {'largest share':>13}  errors with one function a neuron")
    for row in results["rows"]:
        errors = "  ".join(f"{error:8.3g}" for error in row["errors"])
        print(f"{row['way']:<20} {row['largest_share']:>13.2f}  {errors}")


def _fluid(config: Config, experiment: Experiment) -> Fluid:
    teacher, period = dmm.duplicate_detector(), experiment.period
    examples = Examples.from_teacher(teacher, experiment.texts, experiment.cycles, period=period)
    student = dmm.fluid_student(config.layers, config.width)
    return Fluid(student, examples, period=period, governor=experiment.governor)


def _steps(fluid: Fluid, kinds: Sequence[str], experiment: Experiment) -> Any:
    """`steps(leaves, kept, weights, count)`: Adam on all rows, each with its own penalty."""
    loss = fluid.loss(np.ones(len(kinds), bool))
    adam = optax.adam(experiment.learning_rate)
    rows: dict[Corner, np.ndarray] = {
        kind: np.array([each == kind for each in kinds]) for kind in get_args(Corner) if kind in CORNERS
    }

    def total(leaves: jax.Array, kept: jax.Array, weights: jax.Array) -> jax.Array:
        mixed = leaves * kept
        corners = [jnp.sum(_corners(fluid, kind, mixed) * weights * here) for kind, here in rows.items()]
        return loss(leaves, kept)[0] + experiment.lasso * fluid.lasso(mixed) + sum(corners)

    @jax.jit
    def steps(leaves: jax.Array, kept: jax.Array, weights: jax.Array, count: int) -> jax.Array:
        def step(_: Any, state: Any) -> Any:
            leaves, moments = state
            gradient = jnp.where(kept & fluid.soft, jax.grad(total)(leaves, kept, weights), 0.0)
            moved, moments = adam.update(gradient, moments)
            return leaves + moved, moments

        return jax.lax.fori_loop(0, count, step, (leaves, adam.init(leaves)))[0]

    return steps


def _corners(fluid: Fluid, kind: Corner, leaves: jax.Array) -> jax.Array:
    """The penalty of each row."""
    return jax.vmap(lambda row: fluid.corner(kind, row[None]))(leaves)


def _errors(fluid: Fluid, leaves: Any, kept: np.ndarray) -> np.ndarray:
    pairs = zip(np.asarray(leaves), kept, strict=True)
    return np.array([fluid.errors(row, here[None])[0] for row, here in pairs])


def _choice(name: str) -> Choice:
    return "trial" if name == "trial" else "largest"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(Config, run, show)
