"""A run to be killed at any moment, and gone on with: `python killed.py RUNS`. It has everything that must be kept:
evaluation, a rate that is cut on plateaus, momentum, data by key, and now and then a loss that is not finite.
`python killed.py RUNS 3` has three such runs side by side."""

import dataclasses
import sys
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
    accident = jax.random.uniform(of_accident) < 1e-4
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


def main(runs: Path) -> None:
    there = run_folders(runs)
    run = Run.reopen(there[0]) if there else Run.create("killed", CONFIG, runs_dir=runs)
    fit(TASK, CONFIG, run, quiet=True)


def many(runs: Path, count: int) -> None:
    there = {run.experiment: run for run in map(Run.open, run_folders(runs))}
    configs = [dataclasses.replace(CONFIG, steps=3000, seed=seed) for seed in range(count)]
    named = {f"killed-{config.seed}": config for config in configs}
    writers = [
        Run.reopen(there[name].folder) if name in there else Run.create(name, config, runs_dir=runs)
        for name, config in named.items()
    ]
    fit_many(lambda _: TASK, configs, writers)


if __name__ == "__main__":
    folder, *members = sys.argv[1:]
    many(Path(folder), int(members[0])) if members else main(Path(folder))
