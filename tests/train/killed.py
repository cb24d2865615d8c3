"""A run to be killed at any moment and resumed: `python killed.py RUNS`. It has everything that must be kept:
evaluation, a learning rate that is cut on plateaus, momentum, data by key, and now and then a loss that is not finite.
`--steps 8000` ends sooner; `--members 3` trains three such runs, vectorized."""

import argparse
import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp

from lapwing.journal import Run, run_folders
from lapwing.task import Task
from lapwing.train import Checkpointing, FitConfig, Rollback, Schedule, fit, fit_many

CONFIG = FitConfig(
    steps=30_000,
    learning_rate=0.02,
    steps_per_call=10,
    log_every=50,
    evaluate_every=500,
    laps_every=0,
    schedule=Schedule("plateau", patience=3000, cut=0.9),
    rollback=Rollback(times=1000, cut=0.98),
    checkpoint=Checkpointing(seconds=0.02),
)


def batch(key: jax.Array, step: jax.Array) -> jax.Array:
    of_data, of_accident = jax.random.split(key)
    accident = jax.random.uniform(of_accident) < 3e-4
    return jnp.where(accident, jnp.nan, jax.random.normal(of_data, (8, 3)))


def loss(params: dict[str, jax.Array], x: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
    noise = jnp.sin(100.0 * x)
    error = jnp.mean((x @ (params["w"] - 1.0) + noise[:, 0]) ** 2)
    return error, {"distance": jnp.max(jnp.abs(params["w"] - 1.0))}


TASK = Task(
    init=lambda key: {"w": jax.random.normal(key, (3,))},
    data=batch,
    loss=loss,
    evaluate=lambda params, key: {"draw": jnp.sum(params["w"]) + jax.random.uniform(key)},
)


def main(runs: Path, config: FitConfig) -> None:
    there = run_folders(runs)
    run = Run.reopen(there[0]) if there else Run.create("killed", config, runs_dir=runs)
    fit(TASK, config, run, quiet=True)


def many(runs: Path, config: FitConfig, count: int) -> None:
    there = {run.experiment: run for run in map(Run.open, run_folders(runs))}
    configs = [dataclasses.replace(config, seed=seed) for seed in range(count)]
    named = {f"killed-{config.seed}": config for config in configs}
    writers = [
        Run.reopen(there[name].folder) if name in there else Run.create(name, config, runs_dir=runs)
        for name, config in named.items()
    ]
    fit_many(lambda _: TASK, configs, writers)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=Path)
    parser.add_argument("--steps", type=int, default=CONFIG.steps)
    parser.add_argument("--members", type=int)
    options = parser.parse_args()
    config = dataclasses.replace(CONFIG, steps=options.steps)
    many(options.runs, config, options.members) if options.members else main(options.runs, config)
