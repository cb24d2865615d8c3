"""What the training loop costs: `fit` with everything on (logging every step, a progress bar on a terminal, commands,
checkpoints) against a bare loop written by hand around the same step.

Two steps are timed: one of about a millisecond, one call each; and one of some 20 µs, a hundred to a call. Both loops
run in turn in one process: other work on the machine can only add time, so the quicker quarter of the rounds is what
counts. The times of `fit` are those in its own metrics, without the first tenth, in which it compiles; the run folder
is real, and so is the terminal, a pseudo-terminal that is read to its end.
"""

import contextlib
import importlib.util
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
from lapwing.task import Task
from lapwing.train import Checkpointing, FitConfig, fit

from .measure import environment, main, progress, save

RATE, CLIP = 1e-3, 1.0
_STRETCHES = 10


@dataclass(frozen=True)
class Config:
    """What the training loop costs."""

    rounds: int = 6
    """how often each loop is run, in turn"""
    seconds: float = 5.0
    """about how long a round takes"""
    checkpoint_seconds: float = 2.0
    """how often a checkpoint is written; the default of a run is a minute, so this is hard on it"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""


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
    Case("1 ms", (64, 256, 256, 1), 128, 1, 100, 1e-3),
    Case("20 µs", (16, 48, 1), 32, 100, 1000, 2e-5),
)


def run(config: Config) -> dict[str, Any]:
    """Measures; seconds a step, and how many times slower `fit` is than the bare loop."""
    results: dict[str, Any] = {case.name: _measure(case, config) for case in CASES}
    if importlib.util.find_spec("tyro"):  # Without it there is no command line to start.
        results["start"] = _start()
    results["environment"] = environment()
    save(results, "loop", config.out)
    return results


def show(results: dict[str, Any]) -> None:
    """Prints the results for a person."""
    for case in CASES:
        told = results[case.name]
        print(
            f"step of {case.name}, {case.steps_per_call} a call: bare {told['bare_s'] * 1e6:.1f} µs, "
            f"fit {told['fit_s'] * 1e6:.1f} µs: {told['slower'] - 1:+.1%}"
        )
    if start := results.get("start"):
        print(
            f"from the command to the first step, without compiling: {start['seconds']:.2f} s "
            f"(least {start['least']:.2f} s)"
        )


def _measure(case: Case, config: Config) -> dict[str, Any]:
    steps = int(config.seconds / case.about_s) // case.log_every * case.log_every
    bare = _bare_loop(case)
    bare(steps // _STRETCHES)
    times: dict[str, list[float]] = {"bare": [], "fit": []}
    for _ in range(config.rounds):
        times["bare"].append(bare(steps))
        times["fit"].append(_fit(case, steps, config))
    quick = {name: float(np.quantile(found, 0.25)) for name, found in times.items()}
    progress(f"step of {case.name}", quick)
    return {
        "steps": steps,
        "steps_per_call": case.steps_per_call,
        "bare_s": quick["bare"],
        "fit_s": quick["fit"],
        "slower": quick["fit"] / quick["bare"],
        "medians": {name: statistics.median(found) for name, found in times.items()},
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

    return Task(init=init, data=batch, loss=loss)


def _bare_loop(case: Case) -> Callable[[int], float]:
    """A good loop by hand: one compiled call with its buffers given away, no number looked at. Gives seconds a step."""
    task, optimizer = _task(case), optax.chain(optax.clip_by_global_norm(CLIP), optax.adam(RATE))

    def step(carry: Any, _: None) -> tuple[Any, jax.Array]:
        params, state, key, at = carry
        x = task.data(jax.random.fold_in(key, at), at)
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
    """Seconds a step of `fit`, after the first stretch."""
    options = FitConfig(
        steps=steps,
        learning_rate=RATE,
        clip=CLIP,
        steps_per_call=case.steps_per_call,
        log_every=case.log_every,
        checkpoint=Checkpointing(seconds=config.checkpoint_seconds),
    )
    with tempfile.TemporaryDirectory() as folder, _terminal():
        with Run.create("bench", options, runs_dir=folder) as run:
            fit(_task(case), options, run)
        columns = Run.open(run.folder).columns()
    # The first stretch has the compiling in it. Rows are stamped when they are written, some windows at a time, so a
    # short stretch would say more about the writing than about the steps.
    first, last = np.searchsorted(columns["step"], [steps // _STRETCHES - 1, steps - 1])
    return float(np.diff(columns["time"][[first, last]])[0] / np.diff(columns["step"][[first, last]])[0])


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
        screen = io.TextIOWrapper(os.fdopen(theirs, "wb", buffering=0), write_through=True)
        with screen, contextlib.redirect_stdout(screen):
            yield
    finally:
        reader.join()
        os.close(ours)


def _start() -> dict[str, float]:
    """From the command line to the first step on disk. What was compiled before is found in JAX's own cache on disk,
    and what is left of tracing and compiling the step is taken off."""
    words = ["train", "adding", "--steps", "200", "--log-every", "1", "--laps-every", "0", "--json"]
    found = []
    with tempfile.TemporaryDirectory() as cache:
        kept = {
            "JAX_COMPILATION_CACHE_DIR": cache,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        for _ in range(6):
            with tempfile.TemporaryDirectory() as folder:
                begin = time.time()
                made = subprocess.run(
                    [sys.executable, "-m", "lapwing", *words],
                    cwd=folder,
                    check=True,
                    capture_output=True,
                    env={**os.environ, **kept},
                )
                first = Run.open(run_folders(Path(folder, "runs"))[0]).columns()["time"][0]
            found.append(float(first) - begin - json.loads(made.stdout)["compiling_seconds"])
    return {
        "seconds": statistics.median(found[1:]),
        "least": min(found[1:]),
        "with_compiling_all_else": found[0],
    }


if __name__ == "__main__":
    main(Config, run, show)
