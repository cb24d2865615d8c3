"""A run to be killed at any moment, and gone on with: `python killed.py RUNS`. It has everything that must be kept:
evaluation, a rate that is cut on plateaus, momentum, data by key, and now and then a loss that is not finite."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

from lapwing.journal import Run, run_folders
from lapwing.train import Checkpointing, FitConfig, Rollback, Schedule, Task, fit

CONFIG = FitConfig(
    steps=30_000,
    rate=0.02,
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
    batch=batch,
    loss=loss,
    evaluate=lambda params, key: {"draw": jnp.sum(params["w"]) + jax.random.uniform(key)},
)


def main(runs: Path) -> None:
    there = run_folders(runs)
    run = Run.reopen(there[0]) if there else Run.create("killed", CONFIG, runs_dir=runs)
    fit(TASK, CONFIG, run, quiet=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
