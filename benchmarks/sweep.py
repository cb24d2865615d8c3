"""Sweeps from the command to the last file: workers and populations against one run after the other, and a heat map of
the thinker. And the step of a population against the step of one run.

The ways to run a sweep take turns; each runs the same points in a folder of its own. Times include starting the
workers, importing jax, compiling, and what each point writes at its end.
"""

import dataclasses
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lapwing.bench.measure import check_parts, environment, main, save
from lapwing.experiments import REGISTRY
from lapwing.models import ThinkerSize
from lapwing.sweep import LocalEngine, Sweep, run_sweep
from lapwing.train import fit, fit_many

LATENTS_AND_STEPS = ("model.latents=4..8", "model.steps=1..4")
_MACHINE = {"spread": 0.02, "steps_per_call": 20}
_THINKER = {"task": "copy", "steps_per_call": 50}
_ALONE_OR_TOGETHER = {
    "one after the other": {"engine": LocalEngine(1)},
    "population": {"engine": LocalEngine(1), "vectorize": True},
}
_CALLS = 4  # The first is not timed.


@dataclass(frozen=True)
class Config:
    """Parts are workers, machines, thinkers, steps, heatmap."""

    parts: tuple[str, ...] = ("workers", "machines", "thinkers", "steps")
    """what to run"""
    rounds: int = 3
    """turns of each way"""
    adding_steps: int = 2000
    """workers: updates of each run of adding"""
    members: int = 16
    """machines: seeds of dmm-lite"""
    machine_steps: int = 1000
    """machines: updates of each run of dmm-lite"""
    thinker_steps: int = 500
    """thinkers: updates of each run of thinker"""
    machines_at_once: tuple[str, ...] = ("16", "64")
    """steps: sizes of populations of dmm-lite"""
    thinkers_at_once: tuple[str, ...] = ("5",)
    """steps: sizes of populations of thinker"""
    seeds: int = 5
    """heatmap: seeds of each cell"""
    heat_steps: int = 500
    """heatmap: updates of each run"""
    hidden: bool = False
    """heatmap: hide the input after the first step, so that the answer is read from the cache alone"""
    workers: int = 0
    """heatmap: worker processes; 0: one for each core, or GPU"""
    out: str = "benchmarks/results"
    """folder for the results as JSON, and for the sweep of the heat map"""


def run(config: Config) -> dict[str, Any]:
    check_parts(config.parts, _PARTS)
    options = dataclasses.asdict(config)
    del options["out"]  # A path of this machine.
    results: dict[str, Any] = {"options": options}
    for part in config.parts:
        results[part] = _PARTS[part](config)
    # Last: on a GPU this takes the memory that the workers need.
    results["environment"] = environment()
    save(results, "sweep", config.out)
    return results


def show(results: dict[str, Any]) -> None:
    """Prints the results."""
    for part in ("workers", "machines", "thinkers"):
        if row := results.get(part):
            times = ", ".join(f"{way} {found['seconds']:.1f} s" for way, found in row["ways"].items())
            print(f"{row['name']}: {times}: {row['faster']:.2f} times faster")
    for row in results.get("steps", []):
        print(
            f"{row['name']}: a step of one {row['one_s'] * 1e3:.3f} ms, of {row['members']} "
            f"{row['together_s'] * 1e3:.3f} ms: {row['faster']:.2f} times faster than one after the other"
        )
    if heat := results.get("heatmap"):
        print(f"heat map: {heat['points']} points in {heat['seconds']:.0f} s")
        for row in heat["rows"]:
            if row["mean"] is None:
                print(f"{row['name']}: no seed has ended")
                continue
            print(
                f"{row['name']}: {row['mean']:.4f} ± {row['spread'] or 0:.4f}, success {row['success']:.0%}"
            )


def workers_part(config: Config) -> dict[str, Any]:
    """One worker with all cores against a worker for each core."""
    sweep = _sweep("adding", ["learning_rate=0.005,0.01", "clip=1,2"], 1, steps=config.adding_steps)
    ways = {"one after the other": {"engine": LocalEngine(1)}, "a worker for each core": {}}
    return _timed("adding, 4 points", sweep, ways, config.rounds)


def machines_part(config: Config) -> dict[str, Any]:
    """Seeds of dmm-lite on one worker: one after the other against one population."""
    sweep = _sweep("dmm-lite", [], config.members, steps=config.machine_steps, **_MACHINE)
    return _timed(f"dmm-lite, {config.members} seeds", sweep, _ALONE_OR_TOGETHER, config.rounds)


def thinkers_part(config: Config) -> dict[str, Any]:
    """The same with the thinker."""
    sweep = _sweep("latent-thinker", [], 5, steps=config.thinker_steps, **_THINKER)
    return _timed("thinker, copy, 5 seeds", sweep, _ALONE_OR_TOGETHER, config.rounds)


def steps_part(config: Config) -> list[dict[str, Any]]:
    """A compiled step of a population against one of a single run."""
    return [
        *_steps("dmm-lite", config.machines_at_once, **_MACHINE),
        *_steps("latent-thinker", config.thinkers_at_once, **_THINKER),
    ]


def heatmap_part(config: Config) -> dict[str, Any]:
    """Latents 4 to 8 by steps 1 to 4 on copy."""
    size = ThinkerSize(heads=1, layers=1, hide_input_after=0) if config.hidden else ThinkerSize()
    sweep = _sweep(
        "latent-thinker", LATENTS_AND_STEPS, config.seeds, steps=config.heat_steps, model=size, **_THINKER
    )
    folder = Path(config.out or tempfile.mkdtemp()) / "sweep-heatmap"
    result = run_sweep(sweep, folder, engine=LocalEngine(config.workers), vectorize=True)
    for run in folder.glob("*/checkpoints"):
        shutil.rmtree(run)  # Hundreds of models.
    return result.summary


def _sweep(experiment: str, grid: Any, seeds: int, **options: Any) -> Sweep:
    config = REGISTRY.load(experiment).Config(laps_every=0, **options)
    return Sweep.of(experiment, config, grid, seeds=seeds)


def _steps(experiment: str, populations: Sequence[str], **options: Any) -> Iterator[dict[str, Any]]:
    if not populations:
        return
    module = REGISTRY.load(experiment)
    config = module.Config(steps=_CALLS * options["steps_per_call"], laps_every=1, **options)
    one = fit(module.build(config), config, quiet=True).times.seconds_per_step
    for members in map(int, populations):
        configs = [dataclasses.replace(config, seed=seed) for seed in range(members)]
        together = fit_many(module.build, configs, [None] * members)[0].times.seconds_per_step
        assert one is not None
        assert together is not None
        yield {
            "name": experiment,
            "members": members,
            "one_s": one,
            "together_s": together,
            "faster": members * one / together,
        }
        print(f"{experiment}, {members}: {together * 1e3:.3f} ms", file=sys.stderr, flush=True)


def _timed(name: str, sweep: Sweep, ways: Mapping[str, Mapping[str, Any]], rounds: int) -> dict[str, Any]:
    """Medians of the rounds, and the ratio of the first way to the second."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, options in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                result = run_sweep(sweep, Path(folder) / "sweep", **options)
                if result.ended != "finished":
                    raise RuntimeError(f"{name}, {way}: {json.dumps(result.summary['failed'])}")
                times[way].append(result.summary["seconds"])
            print(f"{name}, {way}: {times[way][-1]:.1f} s", file=sys.stderr, flush=True)
    measured = {way: {"seconds": statistics.median(found), "rounds": found} for way, found in times.items()}
    first, second = measured.values()
    return {"name": name, "ways": measured, "faster": first["seconds"] / second["seconds"]}


_PARTS = {
    "workers": workers_part,
    "machines": machines_part,
    "thinkers": thinkers_part,
    "steps": steps_part,
    "heatmap": heatmap_part,
}

if __name__ == "__main__":
    main(Config, run, show)
