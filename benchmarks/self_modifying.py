"""Machines that edit themselves, learned from their answers alone: the period of a wave, and the template of a machine
that grows.

A student has the neurons of its teacher and random soft numbers. It is trained on the teacher's answers in a short run
and tested on a longer one: more periods of the wave, or more cells than it ever had in training. All starts of a seed
are one batch. Rules (learning rate, steps, what counts as learned) were fixed on seed 100.
"""

import functools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lapwing import dmm
from lapwing.bench.measure import check_parts, environment, main, save

PARTS = ("compile", "wave", "growth")
LEARNING_RATE, CLIP = 0.03, 1.0
NEURONS, WAVE_CYCLES, UNSEEN_WAVE_CYCLES = 6, 24, 240
GROWTH_STARTS = {"positive numbers": (0.5, 0.2), "any numbers": (0.0, 0.3)}  # mean and standard deviation
CELLS, GROWTH_CYCLES, UNSEEN_CELLS, UNSEEN_GROWTH_CYCLES = 5, 18, 12, 48


@dataclass(frozen=True)
class Config:
    """Machines that edit themselves, learned from their answers."""

    parts: tuple[str, ...] = PARTS
    """what to measure: compile, wave, growth"""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """seeds of the random starts"""
    starts: int = 8
    """random starts of each seed"""
    periods: tuple[int, ...] = (2, 3, 4, 5, 6)
    """periods of the wave, at most six"""
    steps: int = 4000
    """training steps"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""


def run(config: Config) -> dict[str, Any]:
    check_parts(config.parts, PARTS)
    results: dict[str, Any] = {"environment": environment(), "seeds": config.seeds, "steps": config.steps}
    for part in PARTS:
        if part in config.parts:
            results[part] = globals()[f"measure_{part}"](config)
            save(results, "self-modifying", config.out)
    if path := save(results, "self-modifying", config.out):
        results["written_to"] = str(path)
    return results


def measure_compile(config: Config) -> dict[str, dict[str, float]]:
    """Seconds of a processor to trace and compile a gradient, by the number of cycles; the best of three."""
    machines = {"wave": dmm.learnable_wave(NEURONS), "growth": dmm.growing_machine(CELLS)}
    return {
        name: {
            str(cycles): min(_compile_seconds(machine, cycles) for _ in range(3))
            for cycles in (10, 100, 1000)
        }
        for name, machine in machines.items()
    }


def _compile_seconds(machine: dmm.Machine, cycles: int) -> float:
    jax.clear_caches()
    begin = time.process_time()
    program = dmm.compile(machine, cycles)
    jax.jit(jax.grad(program.loss)).lower(program.start, jnp.zeros((cycles, 2))).compile()
    return time.process_time() - begin


def measure_wave(config: Config) -> dict[str, list[dict[str, Any]]]:
    """For each period and seed how many starts learn it; the student knows neither period nor order."""
    student = dmm.compile(dmm.learnable_wave(2, NEURONS), WAVE_CYCLES)
    longer = dmm.compile(dmm.learnable_wave(2, NEURONS), UNSEEN_WAVE_CYCLES)
    train = jax.jit(functools.partial(trained, student, config.steps))
    found: dict[str, list[dict[str, Any]]] = {}
    for period in config.periods:
        targets = pulses(period, WAVE_CYCLES), pulses(period, UNSEEN_WAVE_CYCLES)
        for seed in config.seeds:
            starts = random_starts(student, seed, config.starts, 0.0, 0.3)
            row = _learned(train, longer, starts, targets, 0.1)
            _report(f"wave of period {period}, seed {seed}", row)
            found.setdefault(str(period), []).append({"seed": seed, **row})
    return found


def measure_growth(config: Config) -> dict[str, list[dict[str, Any]]]:
    """For each seed how many starts learn the template of a cell, by what the start knows about its signs."""
    student = dmm.compile(dmm.growing_machine(CELLS), GROWTH_CYCLES)
    longer = dmm.compile(dmm.growing_machine(UNSEEN_CELLS), UNSEEN_GROWTH_CYCLES)
    train = jax.jit(functools.partial(trained, student, config.steps))
    targets = student.answers(student.start), longer.answers(longer.start)
    found: dict[str, list[dict[str, Any]]] = {}
    for signs, (mean, spread) in GROWTH_STARTS.items():
        for seed in config.seeds:
            starts = random_starts(student, seed, config.starts, mean, spread)
            row = _learned(train, longer, starts, targets, 0.1)
            _report(f"growing machine from {signs}, seed {seed}", row)
            found.setdefault(signs, []).append({"seed": seed, **row})
    return found


def pulses(period: int, cycles: int) -> jax.Array:
    """The answers of a wave: 1 once in a period."""
    return jnp.stack([jnp.arange(cycles) % period == 0, jnp.zeros(cycles)], axis=1).astype(float)


def random_starts(program: dmm.Program, seed: int, starts: int, mean: float, spread: float) -> jax.Array:
    drawn = program.random_params(jax.random.key(seed), spread, machines=starts)
    return drawn + jnp.where(program.soft, mean, 0.0)


def trained(
    program: dmm.Program, steps: int, starts: jax.Array, targets: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The parameters of every start after training, and their losses."""
    adam = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, steps))
    value_and_grad = program.value_and_grad(lambda params, answers: jnp.mean((answers - targets) ** 2))

    def step(state: tuple[jax.Array, Any], _: None) -> tuple[tuple[jax.Array, Any], jax.Array]:
        params, moments = state
        losses, gradients = value_and_grad(params)
        # Each start is clipped on its own; one whose run has overflowed waits.
        sizes = jnp.linalg.norm(gradients, axis=1, keepdims=True)
        gradients = jnp.where(jnp.isfinite(sizes), gradients * jnp.minimum(1.0, CLIP / sizes), 0.0)
        updates, moments = adam.update(gradients, moments)
        return (jnp.asarray(optax.apply_updates(params, updates)), moments), losses

    (params, _), losses = jax.lax.scan(step, (starts, adam.init(starts)), None, length=steps)
    return params, losses[-1]


def _learned(
    train: Callable[..., Any],
    longer: dmm.Program,
    starts: jax.Array,
    targets: tuple[jax.Array, jax.Array],
    bound: float,
) -> dict[str, Any]:
    """What came of the starts: learned is one whose answers are within `bound` in every cycle of the longer run."""
    begin = time.perf_counter()
    params, losses = jax.block_until_ready(train(starts, targets[0]))
    seconds = time.perf_counter() - begin
    worst = jnp.max(jnp.abs(longer.answers(params) - targets[1]), axis=(1, 2))
    return {
        "learned": int(jnp.sum(worst < bound)),
        "starts": len(starts),
        "losses": np.asarray(losses).tolist(),
        "worst_unseen": np.asarray(worst).tolist(),
        "seconds": seconds,
    }


def _report(what: str, row: dict[str, Any]) -> None:
    print(
        f"{what}: {row['learned']} of {row['starts']} learned; largest error in the longer run "
        f"{max(row['worst_unseen']):.2g}; {row['seconds']:.1f} s",
        file=sys.stderr,
        flush=True,
    )


def show(results: dict[str, Any]) -> None:
    for name, times in results.get("compile", {}).items():
        print(
            f"compiling the gradient of {name}: "
            + ", ".join(f"{c} cycles {t:.2f} s" for c, t in times.items())
        )
    rows = {f"wave of period {period}": found for period, found in results.get("wave", {}).items()}
    rows |= {f"growing machine from {signs}": found for signs, found in results.get("growth", {}).items()}
    for name, found in rows.items():
        print(f"{name}: learned " + ", ".join(f"{row['learned']} of {row['starts']}" for row in found))
        least = [row["worst_unseen"][int(np.argmin(row["losses"]))] for row in found]
        print(
            f"  the start of the least loss, largest error in the longer run: {', '.join(f'{x:.1g}' for x in least)}"
        )


if __name__ == "__main__":
    main(Config, run, show)
