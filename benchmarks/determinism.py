"""What deterministic operations cost on a GPU, for each experiment of this repository, and whether they give the same
bits: `fit` with and without them, in turn, each twice.

On a CPU there is nothing to measure: operations are deterministic there.
"""

import dataclasses
import itertools
import statistics
import tempfile
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from lapwing.bench.measure import environment, main, progress, save
from lapwing.experiments import find, known
from lapwing.journal import Run
from lapwing.train import Stop, fit


@dataclass(frozen=True)
class Config:
    """What deterministic operations cost on a GPU."""

    rounds: int = 2
    """how often each is trained, in turn"""
    seconds: float = 3.0
    """about how long a training takes, without compiling"""
    names: tuple[str, ...] = ()
    """experiments; default: all that come with Lapwing"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""


def run(config: Config) -> dict[str, Any]:
    """Measures; seconds a step with and without, their ratio, and whether the parameters of two runs are equal."""
    names = config.names or tuple(name for name, each in known().items() if not each.package)
    results: dict[str, Any] = {name: _measure(name, config) for name in names}
    results["environment"] = environment()
    save(results, "determinism", config.out)
    return results


def show(results: dict[str, Any]) -> None:
    """Prints the results for a person."""
    for name, found in results.items():
        if name != "environment":
            same = {way: "same bits" if equal else "other bits" for way, equal in found["same_bits"].items()}
            print(
                f"{name}: {found['slower']:.3f} times the time with deterministic operations "
                f"({found['seconds']['with'] * 1e6:.0f} against {found['seconds']['without'] * 1e6:.0f} µs a step); "
                f"with: {same['with']}, without: {same['without']}"
            )


def _measure(name: str, config: Config) -> dict[str, Any]:
    experiment = find(name)
    options = experiment.Config()
    few = dataclasses.replace(
        options, steps=_steps(options, 20), laps_every=1, evaluate_every=0, best="loss", mode="min"
    )
    first = fit(experiment.build(few), few, quiet=True).times.seconds_per_step
    assert first is not None
    steps = _steps(options, int(config.seconds / first))
    times: dict[str, list[float]] = {"with": [], "without": []}
    ends: dict[str, list[Any]] = {"with": [], "without": []}
    for _, way in itertools.product(range(config.rounds), times):
        changed = dataclasses.replace(options, steps=steps, deterministic=way == "with")
        seconds, params = _train(experiment, changed)
        times[way].append(seconds)
        ends[way].append(params)
    quick = {way: min(found) for way, found in times.items()}
    progress(name, quick)
    return {
        "steps": steps,
        "seconds": quick,
        "medians": {way: statistics.median(found) for way, found in times.items()},
        "slower": quick["with"] / quick["without"],
        "same_bits": {way: all(_equal(found[0], each) for each in found) for way, found in ends.items()},
    }


def _steps(options: Any, steps: int) -> int:
    """Whole calls, at least two."""
    return max(2, steps // options.steps_per_call) * options.steps_per_call


def _train(experiment: Any, options: Any) -> tuple[float, Any]:
    """Seconds a step after the first tenth, which has the compiling in it, and the parameters at the end."""
    options = dataclasses.replace(
        options, evaluate_every=0, best="loss", mode="min", laps_every=0, stop=Stop()
    )
    with tempfile.TemporaryDirectory() as folder, Run.create("bench", options, runs_dir=folder) as run:
        result = fit(experiment.build(options), options, run, quiet=True)
        columns = Run.open(run.folder).columns()
    first, last = len(columns["step"]) // 10, len(columns["step"]) - 1
    steps = columns["step"][last] - columns["step"][first]
    return float(columns["time"][last] - columns["time"][first]) / steps, jax.device_get(result.state.params)


def _equal(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


if __name__ == "__main__":
    main(Config, run, show)
