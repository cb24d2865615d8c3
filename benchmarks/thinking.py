"""Thinkers of several seeds: how many problems of which size they solve, with how many steps, for docs/results.

    python -m benchmarks.thinking --problem addition --seeds 5             # the default command of the docs
    python -m benchmarks.thinking --problem prefix_sums --seeds 5

Each seed is written as soon as it is trained, and not trained again by the next call.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lapwing.bench.measure import environment, save
from lapwing.data.problems import Instances, Problem, Sudoku
from lapwing.experiments._thinker_evaluation import solved_over_steps
from lapwing.experiments.thinker import Config, build
from lapwing.models import LoopedSize
from lapwing.train import fit

SETTINGS: dict[str, dict[str, Any]] = {
    "addition": {},
    "addition20": {"problem": "addition", "size": 20, "far": 100, "steps": 3000},
    "prefix_sums": {
        "problem": "prefix_sums", "size": 32, "least": 32, "far": 512, "before": 40, "gradient_steps": 16,
        "batch_size": 64, "steps": 1200,
    },
    "maze": {
        "problem": "maze", "size": 9, "least": 9, "far": 59, "before": 24, "gradient_steps": 12, "batch_size": 64,
        "steps": 3000, "learning_rate": 2e-3, "evaluated": 64,
    },
    "sudoku": {
        "problem": "sudoku", "model": LoopedSize(width=128, hidden=4, heads=8), "before": 24, "gradient_steps": 8,
        "batch_size": 256, "steps": 60_000, "learning_rate": 1e-3, "random_starts": 0.5,
    },
}  # fmt: skip
SIZES = {
    "addition": (10, 20, 40, 100),
    "addition20": (20, 100, 500),
    "prefix_sums": (32, 128, 512),
    "maze": (9, 19, 59),
    "sudoku": (9,),
}
COUNT = 256
LATENTS = (1, 4, 16, 64)


def measure(name: str, seed: int, count: int) -> dict[str, Any]:
    config = Config(**{**SETTINGS[name], "seed": seed, "laps_every": 0})
    began = time.perf_counter()
    result = fit(build(config), config, quiet=True)
    seconds = time.perf_counter() - began
    model = result.state.params if result.state.ema is None else result.state.ema
    rows = [_row(config, model, size, count) for size in SIZES[name]]
    puzzles = {"puzzles": _puzzles(config.kind, model)} if isinstance(config.kind, Sudoku) else {}
    return {
        "seed": seed,
        "seconds": round(seconds, 1),
        "loss": result.metrics["loss"][-1].item(),
        "sizes": rows,
        **puzzles,
    }


def _row(config: Config, model: Any, size: int, count: int) -> dict[str, Any]:
    """What is solved of random problems, and of hard ones where there are such."""
    hard = config.harder(1.0)
    row = {"size": size, "steps": config.thinking(size), **_solved(config, config.kind, model, size, count)}
    return {**row, "hard": _solved(config, hard, model, size, count)} if hard else row


def _solved(config: Config, problem: Problem, model: Any, size: int, count: int) -> dict[str, float]:
    """Solved after as many steps as in training, in proportion to the size, after twice as many, and the least of all
    numbers of steps in between: thinking longer must not make it worse."""
    instances = problem.draw(jax.random.key(1), count, size, "test")
    enough = config.thinking(size)
    solved = np.asarray(solved_over_steps(problem, model, instances, 2 * enough))
    return {
        "solved": float(solved[enough - 1]),
        "solved after twice as many": float(solved[-1]),
        "least in between": float(solved[enough - 1 :].min()),
    }


def _puzzles(problem: Sudoku, model: Any, steps: int = 128) -> list[dict[str, Any]]:
    """All test puzzles as they are in the set, by one thought and by the surest of several: what is solved of each
    quarter, by the number of guesses that a solver needs."""
    guesses = problem.puzzles("test").guesses
    quarters = np.array_split(np.argsort(guesses, kind="stable"), 4)
    rows = []
    for count in LATENTS:
        right = np.concatenate([_right(problem, model, some, steps, count) for some in _batches(problem)])
        rows.append(
            {
                "latents": count,
                "solved": float(right.mean()),
                "guesses": [float(guesses[quarter].mean()) for quarter in quarters],
                "solved of each quarter": [float(right[quarter].mean()) for quarter in quarters],
            }
        )
    return rows


def _batches(problem: Sudoku, size: int = 500) -> Iterator[Instances]:
    inputs, targets = problem.instances("test")
    for first in range(0, len(inputs), size):
        yield Instances(inputs[first : first + size], targets[first : first + size])


def _right(problem: Sudoku, model: Any, some: Instances, steps: int, count: int) -> np.ndarray:
    return np.asarray(problem.right(some, model.best_of(some.inputs, steps, count)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problem", choices=SETTINGS, default="addition")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    name = f"thinking-{options.problem}"
    path = Path(options.out) / f"{name}-{jax.default_backend()}.json"
    seeds = json.loads(path.read_text())["seeds"] if path.exists() else []
    for seed in range(options.seeds):
        if seed in [row["seed"] for row in seeds]:
            continue
        seeds.append(measure(options.problem, seed, options.count))
        save(
            {"environment": environment(), "settings": SETTINGS[options.problem], "seeds": seeds},
            name,
            options.out,
        )
        print(json.dumps(seeds[-1]), flush=True)


if __name__ == "__main__":
    main()
