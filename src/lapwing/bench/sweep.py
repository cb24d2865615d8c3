"""Sweeps, timed as a person waits for them, from the command to the last file: two workers against one after the
other, populations against one after the other, and the heat map of seed 002. And what a step of a population takes,
against a step of one.

Each way of running a sweep runs the same points in a folder of its own, in turn, with nothing kept from the one before.
The times include starting the workers, importing jax, compiling, and what each point writes when it is done.
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

from lapwing.experiments import REGISTRY
from lapwing.models import ThinkerSize
from lapwing.sweep import Resources, Sweep, run_sweep
from lapwing.train import fit, fit_many

from ._measure import environment, main, save
from ._plain import check_parts

LATENTS_AND_STEPS = ("model.latents=4..8", "model.steps=1..4")
_MACHINE = {"spread": 0.02, "steps_per_call": 20}
_THINKER = {"task": "copy", "steps_per_call": 50}
_ALONE_OR_TOGETHER = {
    "one after the other": Resources(workers=1),
    "population": Resources(workers=1, vectorize=True),
}
_CALLS = 4  # of a step, the first of which does not count


@dataclass(frozen=True)
class Config:
    """Parts are workers, machines, thinkers, steps, heatmap."""

    parts: tuple[str, ...] = ("workers", "machines", "thinkers", "steps")
    """what to run"""
    rounds: int = 3
    """how often each way is timed, in turn"""
    adding_steps: int = 2000
    """updates of each adding, which is what the workers train"""
    members: int = 16
    """seeds of dmm-lite in a sweep; of the thinker there are 5"""
    machine_steps: int = 1000
    """updates of each dmm-lite"""
    thinker_steps: int = 500
    """updates of each thinker"""
    machines_at_once: tuple[str, ...] = ("16", "64")
    """steps: how many dmm-lite make one together"""
    thinkers_at_once: tuple[str, ...] = ("5",)
    """steps: how many thinkers do"""
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
    check_parts(config.parts, _PARTS)
    options = dataclasses.asdict(config)
    del options["out"]  # A folder of this machine says nothing to others.
    results: dict[str, Any] = {"options": options}
    for part in config.parts:
        results[part] = _PARTS[part](config)
    # Last: on a GPU it takes the memory that the workers need.
    results["environment"] = environment()
    save(results, "sweep", config.out)
    return results


def show(results: dict[str, Any]) -> None:
    """Prints the results for a person."""
    for part in ("workers", "machines", "thinkers"):
        if row := results.get(part):
            times = ", ".join(f"{way} {told['seconds']:.1f} s" for way, told in row["ways"].items())
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
    """One worker that has all cores, one point after the other, against a worker for each core."""
    sweep = _sweep("adding", ["learning_rate=0.005,0.01", "clip=1,2"], 1, steps=config.adding_steps)
    ways = {"one after the other": Resources(workers=1), "a worker for each core": Resources()}
    return _timed("adding, 4 points", sweep, ways, config.rounds)


def machines_part(config: Config) -> dict[str, Any]:
    """One worker: seeds of dmm-lite one after the other, against all of them as one population."""
    sweep = _sweep("dmm-lite", [], config.members, steps=config.machine_steps, **_MACHINE)
    return _timed(f"dmm-lite, {config.members} seeds", sweep, _ALONE_OR_TOGETHER, config.rounds)


def thinkers_part(config: Config) -> dict[str, Any]:
    """The same with seeds of the thinker."""
    sweep = _sweep("thinker", [], 5, steps=config.thinker_steps, **_THINKER)
    return _timed("thinker, copy, 5 seeds", sweep, _ALONE_OR_TOGETHER, config.rounds)


def steps_part(config: Config) -> list[dict[str, Any]]:
    """A compiled step of a population against one of a single run, with nothing around it."""
    return [
        *_steps("dmm-lite", config.machines_at_once, **_MACHINE),
        *_steps("thinker", config.thinkers_at_once, **_THINKER),
    ]


def heatmap_part(config: Config) -> dict[str, Any]:
    """Latents 4 to 8 by steps 1 to 4 on copy."""
    size = ThinkerSize(heads=1, layers=1, hide_input_after=0) if config.hidden else ThinkerSize()
    sweep = _sweep(
        "thinker", LATENTS_AND_STEPS, config.seeds, steps=config.heat_steps, model=size, **_THINKER
    )
    folder = Path(config.out or tempfile.mkdtemp()) / "sweep-heatmap"
    result = run_sweep(sweep, folder, on=Resources(workers=config.workers, vectorize=True))
    for run in folder.glob("*/checkpoints"):
        shutil.rmtree(run)  # The numbers are wanted, not hundreds of models.
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


def _timed(name: str, sweep: Sweep, ways: Mapping[str, Resources], rounds: int) -> dict[str, Any]:
    """Medians of the rounds; how much faster the second way is than the first."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, on in ways.items():
            with tempfile.TemporaryDirectory() as place:
                result = run_sweep(sweep, Path(place) / "sweep", on=on)
                if result.ended != "finished":
                    raise RuntimeError(f"{name}, {way}: {json.dumps(result.summary['failed'])}")
                times[way].append(result.summary["seconds"])
            print(f"{name}, {way}: {times[way][-1]:.1f} s", file=sys.stderr, flush=True)
    told = {way: {"seconds": statistics.median(found), "rounds": found} for way, found in times.items()}
    first, second = told.values()
    return {"name": name, "ways": told, "faster": first["seconds"] / second["seconds"]}


_PARTS = {
    "workers": workers_part,
    "machines": machines_part,
    "thinkers": thinkers_part,
    "steps": steps_part,
    "heatmap": heatmap_part,
}

if __name__ == "__main__":
    main(Config, run, show)
