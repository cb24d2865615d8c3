"""Sweeps, timed as a person waits for them, from the command to the last file: two workers against one after the
other, populations against one after the other, and the heat map of seed 002.

Each way of running a sweep runs the same points in a folder of its own, in turn, with nothing kept from the one before.
The times include starting the workers, importing jax and compiling; what the steps alone take stands beside them.
"""

import dataclasses
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lapwing.experiments import REGISTRY
from lapwing.journal import Run
from lapwing.models import ThinkerSize
from lapwing.sweep import Resources, Sweep, run_sweep

from ._measure import environment, main, save

LATENTS_AND_STEPS = ("model.latents=4..8", "model.steps=1..4")


@dataclass(frozen=True)
class Config:
    """Parts are workers, population, heatmap."""

    parts: tuple[str, ...] = ("workers", "population")
    """what to run"""
    rounds: int = 3
    """how often each way is timed, in turn"""
    adding_steps: int = 2000
    """updates of each adding, which is what the workers train"""
    members: int = 16
    """seeds of dmm-lite in a population; of the thinker there are 5"""
    machine_steps: int = 1000
    """updates of each dmm-lite"""
    thinker_steps: int = 500
    """updates of each thinker"""
    seeds: int = 5
    """seeds of each cell of the heat map"""
    heat_steps: int = 500
    """updates of each training of the heat map"""
    hidden: bool = False
    """heat map: hide the input after the first step, so that the answer is read from the memory alone"""
    workers: int = 0
    """processes that make the heat map at once; 0: as many as there are cores, or GPUs"""
    out: str = "benchmarks/results"
    """folder for the results; the heat map's sweep is in sweep-heatmap there"""


def run(config: Config) -> dict[str, Any]:
    results: dict[str, Any] = {"options": dataclasses.asdict(config)}
    for part in config.parts:
        results[part] = _PARTS[part](config)
    # Last: on a GPU it takes the memory that the workers need.
    results["environment"] = environment()
    save(results, "sweep", config.out)
    return results


def show(results: dict[str, Any]) -> None:
    """Prints the results for a person."""
    for part in ("workers", "population"):
        for row in results.get(part, []):
            times = ", ".join(f"{way} {told['seconds']:.1f} s" for way, told in row["ways"].items())
            print(
                f"{row['name']}: {times}: {row['faster']:.2f} times faster, steps {row['steps_faster']:.2f} times"
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


def workers_part(config: Config) -> list[dict[str, Any]]:
    """One worker that has all cores, one point after the other, against a worker for each core."""
    sweep = _sweep("adding", ["rate=0.005,0.01", "clip=1,2"], 1, steps=config.adding_steps)
    ways = {"one after the other": Resources(workers=1), "a worker for each core": Resources()}
    return [_timed("adding, 4 points", sweep, ways, config.rounds)]


def population_part(config: Config) -> list[dict[str, Any]]:
    """One worker: point after point, against all points as one population."""
    ways = {"one after the other": Resources(workers=1), "population": Resources(workers=1, vectorize=True)}
    machines = _sweep("dmm-lite", [], config.members, steps=config.machine_steps, spread=0.02)
    thinkers = _sweep("thinker", [], 5, task="copy", steps=config.thinker_steps, steps_per_call=50)
    return [
        _timed(f"dmm-lite, {config.members} seeds", machines, ways, config.rounds),
        _timed("thinker, copy, 5 seeds", thinkers, ways, config.rounds),
    ]


def heatmap_part(config: Config) -> dict[str, Any]:
    """Latents 4 to 8 by steps 1 to 4 on copy."""
    size = ThinkerSize(heads=1, layers=1, hide_input_after=0) if config.hidden else ThinkerSize()
    sweep = _sweep(
        "thinker",
        LATENTS_AND_STEPS,
        config.seeds,
        task="copy",
        steps=config.heat_steps,
        steps_per_call=50,
        model=size,
    )
    folder = Path(config.out or tempfile.mkdtemp()) / "sweep-heatmap"
    result = run_sweep(sweep, folder, on=Resources(workers=config.workers, vectorize=True))
    for run in folder.glob("*/checkpoints"):
        shutil.rmtree(run)  # The numbers are wanted, not hundreds of models.
    return result.summary


def _sweep(experiment: str, grid: Any, seeds: int, **options: Any) -> Sweep:
    config = REGISTRY.load(experiment).Config(laps_every=0, **options)
    return Sweep.of(experiment, config, grid, seeds=seeds)


def _timed(name: str, sweep: Sweep, ways: Mapping[str, Resources], rounds: int) -> dict[str, Any]:
    """Medians of the rounds; how much faster the second way is than the first."""
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, on in ways.items():
            with tempfile.TemporaryDirectory() as place:
                result = run_sweep(sweep, Path(place) / "sweep", on=on)
                if result.ended != "finished":
                    raise RuntimeError(f"{name}, {way}: {json.dumps(result.summary['failed'])}")
                times[way].append((result.summary["seconds"], _seconds_of_steps(Path(place) / "sweep")))
            print(f"{name}, {way}: {times[way][-1][0]:.1f} s", file=sys.stderr, flush=True)
    told = {
        way: {"seconds": statistics.median(whole), "steps_s": statistics.median(steps), "rounds": list(whole)}
        for way, found in times.items()
        for whole, steps in [tuple(zip(*found, strict=True))]
    }
    first, second = told.values()
    return {
        "name": name,
        "ways": told,
        "faster": first["seconds"] / second["seconds"],
        "steps_faster": first["steps_s"] / second["steps_s"],
    }


def _seconds_of_steps(folder: Path) -> float:
    """How long steps were made, in one run or another, from the times in their metrics: without compiling."""
    spans = []
    for config in folder.glob("*/config.json"):
        times = Run.open(config.parent).columns()["time"]
        spans.append((float(times[0]), float(times[-1])))
    covered, end = 0.0, 0.0
    for start, stop in sorted(spans):
        covered += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return covered


_PARTS = {"workers": workers_part, "population": population_part, "heatmap": heatmap_part}

if __name__ == "__main__":
    main(Config, run, show)
