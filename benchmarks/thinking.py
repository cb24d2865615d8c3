"""Thinkers of several seeds: how many problems of which size they solve, with how many steps, for docs/results.

    python -m benchmarks.thinking --problem addition --seeds 5             # the default command of the docs
    python -m benchmarks.thinking --problem prefix_sums --seeds 5 --minutes 10

Each seed is written as soon as it is trained and evaluated, and not trained again by the next call. With `--together`
all are one population, which a GPU trains in little more time than one. A seed that was interrupted continues from its
last checkpoint; one whose minutes are over is evaluated as it is. This needs jax, optax, equinox and matplotlib, but
nothing of the command line.
"""

import argparse
import dataclasses
import functools
import itertools
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.bench.measure import environment, save
from lapwing.data.problems import Instances, Problem, Sudoku
from lapwing.experiments._thinker_halting import halting_rules, trace_of
from lapwing.experiments.thinker import Config, build
from lapwing.journal import Run
from lapwing.models import Looped, LoopedSize
from lapwing.train import Checkpoints, FitResult, Schedule, Stop, fit, fit_many

HALTING = LoopedSize(halting=True)
WIDE_MAZE: dict[str, Any] = {
    "problem": "maze",
    "model": LoopedSize(width=64),
    "batch_size": 64,
    "steps": 1500,
    "learning_rate": 2e-3,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "addition": {},
    "addition_halting": {"model": HALTING},
    "addition_base2": {"problem": "addition", "base": 2, "model": HALTING},
    "addition_base16": {"problem": "addition", "base": 16, "model": HALTING},
    "addition20": {"problem": "addition", "size": 20, "steps": 3000, "model": HALTING},
    "prefix_sums": {"problem": "prefix_sums", "steps": 1000, "model": HALTING},
    **{
        f"text_{positions}": {
            "problem": "addition_text", "size": 6, "before": 16, "gradient_steps": 8, "steps": 900,
            "model": LoopedSize(width=64, positions=positions, reach=80, halting=True),
        }
        for positions in ("rotary", "random", "abacus", "places")
    },
    "maze": {"problem": "maze"},
    "maze_wide": WIDE_MAZE,
    "maze_clipped": {**WIDE_MAZE, "clip": 0.05, "schedule": Schedule("cosine", warmup=100)},
    "sudoku": {"problem": "sudoku", "steps": 1200, "learning_rate": 2e-3, "random_starts": 0.5},
    "sudoku_wide": {
        "problem": "sudoku", "model": LoopedSize(width=64), "steps": 15000, "batch_size": 256, "learning_rate": 1e-3,
        "random_starts": 0.5, "ema": 0.999,
    },
}  # fmt: skip
"""Options that are not those of `lapwing train thinker --problem NAME`."""
SIZES = {
    "addition": {10: 256, 20: 256, 40: 256, 100: 256, 500: 32},
    "addition_halting": {10: 256, 20: 256, 40: 256, 100: 256, 500: 32},
    "addition_base2": {10: 256, 40: 256, 100: 256},
    "addition_base16": {10: 256, 40: 256, 100: 256},
    "addition20": {20: 256, 100: 256, 200: 64, 500: 32},
    "prefix_sums": {32: 256, 128: 256, 512: 64},
    **{name: {6: 256, 12: 256, 18: 128, 24: 128} for name in SETTINGS if name.startswith("text_")},
    **{name: {9: 256, 19: 128, 33: 32, 59: 8} for name in SETTINGS if name.startswith("maze")},
    **{name: {9: 256} for name in SETTINGS if name.startswith("sudoku")},
}
"""The sizes that are evaluated, and how many problems of each on a CPU."""
COUNT = 256
"""Problems of each size on a GPU."""
LATENTS = (1, 4, 16)
"""From how many starts a Sudoku is thought about; on a CPU only the first two numbers."""


def trained(
    name: str, settings: dict[str, Any], seeds: Sequence[int], options: argparse.Namespace
) -> dict[int, FitResult]:
    """Trains seeds, each in a folder of its own, from its last checkpoint if it has one; without those that were
    interrupted. Several are one population, and each takes as long as all of them."""
    # What is evaluated here need not be in the training too.
    plain = {"far": 0, "evaluated": 8, "laps_every": 0}
    configs, runs = [], []
    for seed in seeds:
        folder = _folder(name, seed, options)
        config = Config(**{**settings, **plain, "seed": seed})
        runs.append(
            Run.reopen(folder)
            if folder.exists()
            else Run.create("thinker", config=config, runs_dir=options.runs, name=folder.name)
        )
        left = max(options.minutes - _spent(folder) / 60, 1e-9)
        configs.append(dataclasses.replace(config, stop=Stop(minutes=left)))
    if len(seeds) == 1:
        results = [fit(build(configs[0]), configs[0], runs[0], quiet=True, allow_change=True)]
    else:
        results = fit_many(build, configs, runs, allow_change=True)
    return {
        config.seed: result
        for config, result in zip(configs, results, strict=True)
        if result.seconds >= 60 * options.minutes or int(result.state.step) >= config.steps
    }


def measure(
    name: str, settings: dict[str, Any], seed: int, result: FitResult, options: argparse.Namespace
) -> dict[str, Any]:
    """A row of the results."""
    config = Config(**{**settings, "seed": seed})
    model = result.state.params if result.state.ema is None else result.state.ema
    # To be evaluated on another machine too.
    np.savez(_folder(name, seed, options) / "network.npz", *map(np.asarray, jax.tree.leaves(model)))
    rows = [_row(config, model, size, options.count or _count(few)) for size, few in SIZES[name].items()]
    puzzles = {"puzzles": _puzzles(config.kind, model)} if isinstance(config.kind, Sudoku) else {}
    return {
        "seed": seed,
        "seconds": round(result.seconds, 1),
        "steps": int(result.state.step),
        "loss": result.metrics["loss"][-1].item(),
        "sizes": rows,
        **puzzles,
    }


def _folder(name: str, seed: int, options: argparse.Namespace) -> Path:
    return Path(options.runs) / f"thinking-{name}-{jax.default_backend()}-{seed}"


def _spent(folder: Path) -> float:
    """Seconds of training up to the last checkpoint."""
    found = Checkpoints(folder / "checkpoints").all()
    return found[-1].record["seconds"] if found else 0.0


def _count(few: int) -> int:
    return few if jax.default_backend() == "cpu" else COUNT


def _row(config: Config, model: Any, size: int, count: int) -> dict[str, Any]:
    """What is solved of random problems, and of hard ones where there are such."""
    hard = config.harder(1.0)
    row = {"size": size, "steps": config.thinking(size), **_solved(config, config.kind, model, size, count)}
    return {**row, "hard": _solved(config, hard, model, size, count)} if hard else row


def _solved(config: Config, problem: Problem, model: Any, size: int, count: int) -> dict[str, Any]:
    """Solved after as many steps as in training, in proportion to the size, after twice as many, and the least of all
    numbers of steps in between: thinking longer must not make it worse. And what each rule of halting solves."""
    instances = problem.draw(jax.random.key(1), count, size, "test")
    enough = config.thinking(size)
    trace = trace_of(problem, model, instances, 2 * enough)
    solved = trace.right.mean(axis=1)
    return {
        "count": count,
        "solved": float(solved[enough - 1]),
        "solved after twice as many": float(solved[-1]),
        "least in between": float(solved[enough - 1 :].min()),
        "rules": halting_rules(trace, enough),
    }


def _puzzles(problem: Sudoku, model: Looped, steps: tuple[int, ...] = (64, 128, 256)) -> list[dict[str, Any]]:
    """All test puzzles as they are in the set, by one thought and by the surest of several, by each way to tell the
    surest: what is solved of each quarter, by the number of guesses that a solver needs."""
    guesses = problem.puzzles("test").guesses
    quarters = np.array_split(np.argsort(guesses, kind="stable"), 4)
    latents = LATENTS[:2] if jax.default_backend() == "cpu" else LATENTS
    thoughts = [_thoughts(problem, model, steps, number) for number in range(max(latents))]
    rows = []
    for at, count, by in itertools.product(range(len(steps)), latents, thoughts[0].sure):
        right = np.stack([thought.right[at] for thought in thoughts[:count]])
        sure = np.stack([thought.sure[by][at] for thought in thoughts[:count]])
        chosen = right[np.argmax(sure, axis=0), np.arange(len(guesses))]
        rows.append(
            {
                "steps": steps[at],
                "latents": count,
                "by": by,
                "solved": float(chosen.mean()),
                "solved by any": float(right.any(axis=0).mean()),
                "guesses": [float(guesses[quarter].mean()) for quarter in quarters],
                "solved of each quarter": [float(chosen[quarter].mean()) for quarter in quarters],
            }
        )
    return rows


class Thoughts(NamedTuple):
    """Of each number of steps and each puzzle: whether the answer is right, and how sure the network is of it."""

    right: np.ndarray
    sure: dict[str, np.ndarray]


def _thoughts(problem: Sudoku, model: Looped, steps: tuple[int, ...], number: int) -> Thoughts:
    """Of one start, for all test puzzles."""
    inputs, targets = problem.instances("test")
    found = [
        _thought(
            problem,
            steps,
            model,
            Instances(inputs[first : first + 500], targets[first : first + 500]),
            number,
        )
        for first in range(0, len(inputs), 500)
    ]
    right, sure = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *found)
    return Thoughts(right, sure)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _thought(
    problem: Sudoku, steps: tuple[int, ...], model: Looped, some: Instances, number: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    recalled, state, done, found = model.recall(some.inputs), model.start(some.inputs, number), 0, []
    for many in steps:
        before = model.think(state, recalled, many - 1 - done)
        state, done = model.step(before, recalled), many
        right = problem.right(some, jnp.argmax(model.logits(state), axis=-1))
        ways: tuple[Any, ...] = ("answers", "halting") if model.halting else ("answers",)
        found.append((right, {by: model.surest(state, before, by) for by in ways}))
    return jax.tree.map(lambda *each: jnp.stack(each), *found)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problem", choices=SETTINGS, default="addition")
    parser.add_argument("--seeds", type=int, default=5, help="how many, from the first")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--together", action="store_true", help="train the seeds as one population")
    parser.add_argument("--minutes", type=float, default=math.inf, help="most minutes of training of a seed")
    parser.add_argument("--steps", type=int, help="updates, in place of those of the problem")
    parser.add_argument("--count", type=int, help="problems of each size, in place of those of the device")
    parser.add_argument("--runs", default="runs", help="folder of the runs, one for each seed")
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args(words)
    name = f"thinking-{options.problem}"
    path = Path(options.out) / f"{name}-{jax.default_backend()}.json"
    seeds = json.loads(path.read_text())["seeds"] if path.exists() else []
    settings = SETTINGS[options.problem] | ({"steps": options.steps} if options.steps else {})
    wanted = range(options.first, options.first + options.seeds)
    left = [seed for seed in wanted if seed not in [row["seed"] for row in seeds]]
    for some in [left] if options.together else [[seed] for seed in left]:
        results = trained(options.problem, settings, some, options) if some else {}
        for seed, result in results.items():
            seeds.append(measure(options.problem, settings, seed, result, options))
            done = {"environment": environment(), "settings": _plain(settings), "together": options.together}
            save({**done, "seeds": seeds}, name, options.out)
            print(json.dumps(seeds[-1]), flush=True)
        if missing := sorted({*some} - {*results}):
            interrupted = ", ".join(map(str, missing))
            print(f"seed {interrupted} was interrupted; the same command continues it", file=sys.stderr)
            return 1
    return 0


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        name: dataclasses.asdict(value) if isinstance(value, LoopedSize | Schedule) else value
        for name, value in settings.items()
    }


if __name__ == "__main__":
    raise SystemExit(main())
