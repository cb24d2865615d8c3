"""What the training loop costs: `fit` with everything on (logging every step, a progress bar on a terminal, commands,
checkpoints) against a bare loop written by hand around the same step.

Two steps are timed: one of about a millisecond, one call each; and one of some 20 µs, a hundred to a call. Both loops run
in turn in one process. The time of `fit` is taken from the times in its own metrics, which leaves out its compiling;
the run folder is real, and so is the terminal, a pseudo-terminal that is read to its end.
"""

import contextlib
import io
import json
import os
import pty
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lapwing.journal import Run, run_folders
from lapwing.train import Checkpointing, FitConfig, Task, fit

from ._measure import environment, main, progress, save

RATE, CLIP = 1e-3, 1.0


@dataclass(frozen=True)
class Config:
    """What the training loop costs."""

    rounds: int = 5
    """how often each loop is timed; the median counts"""
    seconds: float = 5.0
    """about how long a round takes"""
    checkpoint_seconds: float = 2.0
    """how often a checkpoint is written; the default of a run is a minute, so this is hard on it"""
    results: str = "benchmarks/results"
    """the folder for the results; empty: write none"""


@dataclass(frozen=True)
class Case:
    """A network to train, and how many steps go into one call."""

    name: str
    widths: tuple[int, ...]
    examples: int
    steps_per_call: int
    log_every: int
    about_s: float


CASES = (
    Case("1 ms", (64, 256, 256, 1), 96, 1, 100, 1e-3),
    Case("20 µs", (4, 1), 4, 100, 1000, 2e-5),
)


def run(config: Config) -> dict[str, Any]:
    """Measures; seconds a step, and how many times slower `fit` is than the bare loop."""
    results: dict[str, Any] = {
        case.name: _measure(case, config) for case in CASES
    }
    results["start"] = _start()
    results["environment"] = environment()
    save(results, "loop", config.results)
    return results


def show(results: dict[str, Any]) -> None:
    """Prints the results for a person."""
    for case in CASES:
        told = results[case.name]
        print(
            f"step of {case.name}, {case.steps_per_call} a call: bare {told['bare_s'] * 1e6:.1f} µs, "
            f"fit {told['fit_s'] * 1e6:.1f} µs: {told['slower'] - 1:+.1%}"
        )
    print(f"from the command to the first step, without compiling: {results['start']['seconds']:.2f} s")


def _measure(case: Case, config: Config) -> dict[str, Any]:
    steps = int(config.seconds / case.about_s) // case.log_every * case.log_every
    bare = _bare_loop(case)
    bare(steps // 10)
    times: dict[str, list[float]] = {"bare": [], "fit": []}
    for _ in range(config.rounds):
        times["bare"].append(bare(steps))
        times["fit"].append(_fit(case, steps, config))
    medians = {name: statistics.median(found) for name, found in times.items()}
    progress(f"step of {case.name}", medians)
    ratios = [ours / theirs for ours, theirs in zip(times["fit"], times["bare"], strict=True)]
    return {
        "steps": steps,
        "steps_per_call": case.steps_per_call,
        "bare_s": medians["bare"],
        "fit_s": medians["fit"],
        "slower": statistics.median(ratios),
        "rounds": ratios,
    }


def _task(case: Case) -> Task:
    sizes = list(zip(case.widths[:-1], case.widths[1:], strict=True))

    def init(key: jax.Array) -> list[jax.Array]:
        keys = jax.random.split(key, len(sizes))
        return [jax.random.normal(k, size) * size[0] ** -0.5 for k, size in zip(keys, sizes, strict=True)]

    def batch(key: jax.Array, step: jax.Array) -> jax.Array:
        return jax.random.normal(key, (case.examples, case.widths[0]))

    def loss(params: list[jax.Array], x: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        hidden = x
        for weights in params[:-1]:
            hidden = jnp.tanh(hidden @ weights)
        return jnp.mean(((hidden @ params[-1])[:, 0] - jnp.sin(x[:, 0])) ** 2), {}

    return Task(init=init, batch=batch, loss=loss)


def _bare_loop(case: Case) -> Callable[[int], float]:
    """A good loop by hand: one compiled call with its buffers given away, no number looked at. Gives seconds a step."""
    task, optimizer = _task(case), optax.chain(optax.clip_by_global_norm(CLIP), optax.adam(RATE))

    def step(carry: Any, _: None) -> tuple[Any, jax.Array]:
        params, state, key, at = carry
        x = task.batch(jax.random.fold_in(key, at), at)
        (loss, _), gradient = jax.value_and_grad(task.loss, has_aux=True)(params, x)
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state, key, at + 1), loss

    call = jax.jit(lambda carry: jax.lax.scan(step, carry, length=case.steps_per_call), donate_argnums=0)
    params = task.init(jax.random.key(0))
    carry = params, optimizer.init(params), jax.random.key(1), jnp.int32(0)

    def timed(steps: int) -> float:
        nonlocal carry
        carry, _ = jax.block_until_ready(call(carry))
        start = time.perf_counter()
        for _ in range(steps // case.steps_per_call):
            carry, _ = call(carry)
        jax.block_until_ready(carry)
        return (time.perf_counter() - start) / steps

    return timed


def _fit(case: Case, steps: int, config: Config) -> float:
    """Seconds a step of `fit`, between the first rows that it wrote and the last."""
    options = FitConfig(
        steps=steps,
        rate=RATE,
        clip=CLIP,
        steps_per_call=case.steps_per_call,
        log_every=case.log_every,
        checkpoint=Checkpointing(seconds=config.checkpoint_seconds),
    )
    with tempfile.TemporaryDirectory() as folder, _terminal():
        with Run.create("bench", options, runs_dir=folder) as run:
            fit(_task(case), options, run)
        columns = Run.open(run.folder).columns()
    begin = int(np.searchsorted(columns["step"], steps // 10))
    return float((columns["time"][-1] - columns["time"][begin]) / (columns["step"][-1] - columns["step"][begin]))


@contextlib.contextmanager
def _terminal() -> Iterator[None]:
    """Standard output is a terminal that somebody reads, so that the bar is drawn as for a person."""
    ours, theirs = pty.openpty()

    def read() -> None:
        with contextlib.suppress(OSError):
            while os.read(ours, 65536):
                pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with io.TextIOWrapper(os.fdopen(theirs, "wb", buffering=0), write_through=True) as screen:
            with contextlib.redirect_stdout(screen):
                yield
    finally:
        reader.join()
        os.close(ours)


def _start() -> dict[str, float]:
    """From the command line to the first step on disk, without the time of compiling."""
    words = ["train", "adding", "--steps", "200", "--log-every", "1", "--laps-every", "0", "--json"]
    found = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            begin = time.time()
            made = subprocess.run(
                [sys.executable, "-m", "lapwing", *words], cwd=folder, check=True, capture_output=True
            )
            first = Run.open(run_folders(Path(folder, "runs"))[0]).columns()["time"][0]
        found.append(float(first) - begin - json.loads(made.stdout)["compiling_seconds"])
    return {"seconds": statistics.median(found)}


if __name__ == "__main__":
    main(Config, run, show)
