"""Everything on the results page of the thinker: each problem with several seeds, the memory, the grid and the lengths.

All of it goes through the public experiment and training loop, and is scored by the exact match on held-out examples.
"""

import contextlib
import dataclasses
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from lapwing.bench.measure import environment, main, save
from lapwing.experiments.latent_thinker import Config as Experiment
from lapwing.experiments.latent_thinker import build
from lapwing.models import ThinkerSize
from lapwing.train import Stop, fit

BOUND = 0.995
GRID_LATENTS, GRID_STEPS, GRID_LENGTH = (1, 2, 4, 8), (1, 2, 4), 16


@dataclass(frozen=True)
class Config:
    """Parts are add, quick, copy, flip, roll, sort, cumsum, memory, grid."""

    parts: tuple[str, ...] = ("add", "quick", "copy", "flip", "roll", "memory", "grid")
    """what to run"""
    seeds: int = 5
    """number of seeds"""
    steps: int = 2000
    """updates of each training"""
    memory_steps: int = 4000
    """updates of each training of the part memory, which is harder"""
    batch: int = 256
    """examples in a batch"""
    calls: int = 50
    """updates per call"""
    out: str = "benchmarks/results"
    """folder for the results as JSON and the picture; empty for none"""


def run(config: Config) -> dict[str, Any]:
    results: dict[str, Any] = {"environment": environment(), "options": dataclasses.asdict(config)}
    with tempfile.TemporaryDirectory() as cache, _compiled_once(cache):
        for part in config.parts:
            results[part] = _PARTS.get(part, lambda config, part=part: task_part(config, part))(config)
            path = save(results, "thinker-results", config.out)
            if path is not None and part == "grid":
                heat_map(results[part], path.with_name("thinker-grid.png"))
    return results


def show(results: dict[str, Any]) -> None:
    """Prints the results."""
    print(f"{'':38}{'exact match':>24}{'token':>8}{'chance':>8}{'steps':>8}{'seconds':>9}")
    for part in results["options"]["parts"]:
        for row in results[part]:
            exact = [found["exact_match"] for found in row["found"]]
            spread = f"{statistics.median(exact):.4f} ({min(exact):.4f}–{max(exact):.4f})"
            first = row["found"][0]
            seconds = statistics.median(found["seconds"] for found in row["found"])
            print(
                f"{row['name']:38}{spread:>24}{first['token_accuracy']:8.4f}"
                f"{first['baseline_token_accuracy']:8.4f}{first['steps']:8}{seconds:9.1f}"
            )


def task_part(config: Config, name: str) -> list[dict[str, Any]]:
    """A problem with the defaults of the experiment."""
    return [_row(name, config, _experiment(config, task=name))]


def quick_part(config: Config) -> list[dict[str, Any]]:
    """The seconds until addition is learned, compiling included."""
    stop = Stop(metric="eval_exact_match", above=BOUND)
    return [_row("add, until 99.5%", config, _experiment(config, task="add", evaluate_every=100, stop=stop))]


def memory_part(config: Config) -> list[dict[str, Any]]:
    """Copy of 32 symbols, the input hidden after step 1: all must be in the 2·latents vectors of two steps.

    With one layer a vector reads one position of the input per head, so with one head it holds about one symbol.
    """
    rows = []
    for heads, latents in ((1, 4), (1, 8), (1, 16), (1, 24), (4, 1), (4, 2), (4, 4), (4, 8), (4, 16)):
        size = ThinkerSize(latents=latents, steps=2, heads=heads, layers=1, hide_input_after=1)
        options = _experiment(config, task="copy", length=32, steps=config.memory_steps, model=size)
        name = f"copy 32, hidden, {heads} heads, {latents} latents"
        rows.append(_row(name, config, options, min(config.seeds, 3)))
    return rows


def grid_part(config: Config) -> list[dict[str, Any]]:
    """Latents × steps: copy of 16 symbols that are read from the cache alone."""
    rows = []
    for latents in GRID_LATENTS:
        for steps in GRID_STEPS:
            size = ThinkerSize(latents=latents, steps=steps, heads=1, layers=1, hide_input_after=steps - 1)
            options = _experiment(config, task="copy", length=GRID_LENGTH, model=size)
            rows.append(_row(f"grid, {latents} latents, {steps} steps", config, options, 1))
    return rows


def heat_map(rows: list[dict[str, Any]], path: Path) -> None:
    """Token accuracy by latents and steps, as a picture."""
    from lapwing import report

    shares = [row["found"][0]["token_accuracy"] for row in rows]
    picture = report.heat_map(
        [shares[i : i + len(GRID_STEPS)] for i in range(0, len(shares), len(GRID_STEPS))],
        rows=("latents", list(map(str, GRID_LATENTS))),
        columns=("steps of thinking", list(map(str, GRID_STEPS))),
        notes=[[f"{latents * steps} thoughts" for steps in GRID_STEPS] for latents in GRID_LATENTS],
        label="right tokens, held out",
        title=f"Copy of {GRID_LENGTH} symbols from the memory alone",
        limits=(0.0, 1.0),
    )
    path.write_bytes(picture.light)


@contextlib.contextmanager
def _compiled_once(folder: str) -> Iterator[None]:
    """A compilation cache: all seeds have the same program."""
    options = {"jax_compilation_cache_dir": folder, "jax_persistent_cache_min_compile_time_secs": 0.0}
    before = {name: getattr(jax.config, name) for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def _experiment(config: Config, **changes: Any) -> Experiment:
    options = {
        "steps": config.steps,
        "batch_size": config.batch,
        "steps_per_call": config.calls,
        "laps_every": 0,
    }
    return Experiment(**{**options, **changes})


def _row(name: str, config: Config, options: Experiment, seeds: int | None = None) -> dict[str, Any]:
    found = []
    for seed in range(config.seeds if seeds is None else seeds):
        result = fit(build(options), dataclasses.replace(options, seed=seed), quiet=True)
        metrics = {name.removeprefix("eval_"): value for name, value in result.evaluation.items()}
        found.append({"seed": seed, "steps": int(result.state.step), "seconds": result.seconds, **metrics})
        print(
            f"{name}, seed {seed}: exact match {metrics['exact_match']:.4f}, tokens {metrics['token_accuracy']:.4f}, "
            f"{found[-1]['steps']} steps in {result.seconds:.1f} s",
            file=sys.stderr,
            flush=True,
        )
    return {"name": name, "found": found}


_PARTS: dict[str, Callable[[Config], list[dict[str, Any]]]] = {
    "quick": quick_part,
    "memory": memory_part,
    "grid": grid_part,
}

if __name__ == "__main__":
    main(Config, run, show)
