"""The thinker against a straightforward one with a Python loop over the steps and a growing memory; and the phases of a
training step beside those of its first author (docs/story.md).

Both have the same weights and compute the same. What is timed is the loss and its gradient, and compiling them: the
rival's program grows with the steps.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np

from lapwing.bench.measure import alternate, environment, main, progress, save
from lapwing.data import Examples, SequenceProblem, cross_entropy
from lapwing.experiments.latent_thinker import Config as Experiment
from lapwing.experiments.latent_thinker import build, logits_of
from lapwing.models import Thinker, ThinkerSize
from lapwing.train import fit

from .plain_thinker import PlainThinker

SIZES = ("add,20", "copy,20", "copy,64")
STEPS, COMPILED_STEPS = 8, 16
_COMPILATIONS = 3
THEN_SIZE = ThinkerSize(latents=4, steps=1, heads=4, width=32, layers=1)
THEN_TIMES = {"data": 0.000336, "forward": 0.011631, "backward and the rest": 0.081530}
"""Seconds in the journal of December 2023, on a T4 with a batch of 4096."""


@dataclass(frozen=True)
class Config:
    """A size is written task,length, such as copy,64."""

    sizes: tuple[str, ...] = SIZES
    """problems and lengths to time, with 8 thinking steps"""
    batch: int = 64
    """examples in a batch"""
    latents: int = 4
    """latents of the model"""
    rounds: int = 9
    """runs of each rival; the median counts"""
    seconds: float = 60.0
    """time limit for one size"""
    compiling: bool = True
    """also time compiling with 16 steps"""
    phases: tuple[str, ...] = ("1024", "4096")
    """batch sizes of the table of phases"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""


def run(config: Config) -> dict[str, Any]:
    results: dict[str, Any] = {"environment": environment(), "steps": STEPS}
    results["speed"] = [speed(config, *_parsed(size)) for size in config.sizes]
    if config.compiling:
        results["compiling"] = {"steps": COMPILED_STEPS, **compiling(config)}
    results["phases"] = {batch: phases(int(batch)) for batch in config.phases}
    save(results, "thinker", config.out)
    return results


def show(results: dict[str, Any]) -> None:
    """Prints the results."""
    print(f"loss and gradient, {results['steps']} thinking steps")
    for row in results["speed"]:
        print(
            f"  {row['size']:8}  ours {row['ours_s'] * 1e3:8.2f} ms   plain {row['plain_s'] * 1e3:8.2f} ms   "
            f"{row['faster']:.2f} times faster; losses differ by {row['difference']:.1g}"
        )
    if found := results.get("compiling"):
        print(
            f"compiling at {found['steps']} steps: ours {found['ours_s']:.1f} s, plain {found['plain_s']:.1f} s: "
            f"{found['faster']:.1f} times shorter"
        )
    batches = list(results["phases"])
    print(
        "phases in ms" + "".join(f"{f'batch {batch}':>16}" for batch in batches) + f"{'2023, T4, 4096':>18}"
    )
    for name, then in THEN_TIMES.items():
        now = "".join(f"{results['phases'][batch][name] * 1e3:16.3f}" for batch in batches)
        print(f"{name:22}{now[10:]}{then * 1e3:18.3f}")
    fused = "".join(f"{results['phases'][batch]['fused'] * 1e3:16.3f}" for batch in batches)
    print(f"{'fused, as it runs':22}{fused[10:]}{sum(THEN_TIMES.values()) * 1e3:18.3f}")


def speed(config: Config, name: str, length: int) -> dict[str, Any]:
    """Seconds of the loss and gradient of both."""
    ours, plain = _rivals(name, length, STEPS, config)
    (first, _), (second, _) = ours(), plain()
    times = alternate({"ours": ours, "plain": plain}, config.rounds, config.seconds)
    size = f"{name},{length}"
    progress(size, times)
    return {
        "size": size,
        "ours_s": times["ours"],
        "plain_s": times["plain"],
        "faster": times["plain"] / times["ours"],
        "difference": float(np.abs(first - second)),
    }


def compiling(config: Config) -> dict[str, float]:
    """Seconds to trace and compile the loss and gradient of both, the first size."""
    seconds: dict[str, list[float]] = {"ours": [], "plain": []}
    for _ in range(_COMPILATIONS):
        for name, parts in zip(
            seconds, _losses(*_parsed(config.sizes[0]), COMPILED_STEPS, config), strict=True
        ):
            jax.clear_caches()
            begin = time.perf_counter()
            _compiled(*parts)
            seconds[name].append(time.perf_counter() - begin)
    ours, plain = (statistics.median(found) for found in seconds.values())
    return {"ours_s": ours, "plain_s": plain, "faster": plain / ours}


def phases(batch: int) -> dict[str, float]:
    """Seconds of the phases of a training step, for a model of the size of 2023."""
    config = Experiment(
        model=THEN_SIZE, batch_size=batch, steps=12, laps_every=1, evaluated=16, far=0, steps_per_call=1
    )
    times = fit(build(config), config, quiet=True).times
    found = {phase.path: phase.p50 or 0.0 for phase in times.phases.phases}
    rest = sum(found[name] for name in ("backward", "update", "remember"))
    return {
        "data": found["data"],
        "forward": found["forward"],
        "backward and the rest": rest,
        "fused": times.seconds_per_step or 0.0,
    }


def _rivals(name: str, length: int, steps: int, config: Config) -> list[Callable[[], Any]]:
    return [_compiled(*each) for each in _losses(name, length, steps, config)]


def _losses(
    name: str, length: int, steps: int, config: Config
) -> list[tuple[Callable[..., Any], Any, Examples]]:
    """Each as a loss, its parameters and the examples."""
    problem = SequenceProblem(name, length=length)  # pyright: ignore[reportArgumentType]
    examples = jax.jit(lambda key: problem.draw(key, config.batch))(jax.random.key(1))
    size = ThinkerSize(latents=config.latents, steps=steps)
    model = Thinker(size, problem.vocabulary, problem.inputs, problem.outputs, jax.random.key(0))
    plain, fixed = eqx.partition(PlainThinker(model), eqx.is_inexact_array)

    def loss(model: Thinker, examples: Examples) -> jax.Array:
        return cross_entropy(logits_of(model, examples), examples.targets)

    def plain_loss(arrays: Any, examples: Examples) -> jax.Array:
        rival = eqx.combine(arrays, fixed)
        logits = jax.vmap(lambda tokens: rival(tokens, problem.outputs))(examples.inputs)
        return cross_entropy(logits, examples.targets)

    return [(loss, model, examples), (plain_loss, plain, examples)]


def _compiled(loss: Callable[..., Any], params: Any, examples: Examples) -> Callable[[], Any]:
    call = jax.jit(jax.value_and_grad(loss)).lower(params, examples).compile()
    return lambda: call(params, examples)


def _parsed(size: str) -> tuple[str, int]:
    name, length = size.split(",")
    return name, int(length)


if __name__ == "__main__":
    main(Config, run, show)
