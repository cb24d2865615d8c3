"""Two checkouts of Lapwing against each other: gradients of recurrent networks, a machine's gradient, and `fit`.

    python -m benchmarks.checkouts OLD/src NEW/src

Each checkout runs in a process of its own, and the two take turns, round by round, on the same machine. What counts is
the median of the ratios of a round, so other work on the machine disturbs both alike.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

ROUNDS = 9
SECONDS = 2.0


def gru(batch: int, steps: int, width: int) -> Callable[[], Any]:
    """The gradient of a GRU by `lw.scan`."""
    import jax
    import jax.numpy as jnp

    import lapwing as lw

    def loss(weights: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            x_reset, x_update, x_new = jnp.split(x @ weights["x"], 3, axis=-1)
            h_reset, h_update, h_new = jnp.split(h @ weights["h"], 3, axis=-1)
            reset, update = jax.nn.sigmoid(x_reset + h_reset), jax.nn.sigmoid(x_update + h_update)
            return (1 - update) * jnp.tanh(x_new + reset * h_new) + update * h, None

        return jnp.mean(lw.scan(step, jnp.zeros((batch, width)), xs)[0] ** 2)

    keys = jax.random.split(jax.random.key(0), 3)
    weights = {
        name: jax.random.normal(key, (width, 3 * width)) / width
        for name, key in zip("xh", keys, strict=False)
    }
    gradient = jax.jit(jax.grad(loss))
    xs = jax.random.normal(keys[2], (steps, batch, width))
    return lambda: jax.block_until_ready(gradient(weights, xs))


def machine() -> Callable[[], Any]:
    """The gradient of the duplicate detector over 140 cycles."""
    import jax
    import jax.numpy as jnp

    from lapwing import dmm

    program = dmm.compile(dmm.duplicate_detector(), 140, text="test string.")
    gradient = jax.jit(jax.grad(lambda w: jnp.sum(program.answers(w) ** 2)))
    return lambda: jax.block_until_ready(gradient(program.start))


def training(width: int, per_call: int, steps: int) -> Callable[[], float]:
    """The seconds of a step of `fit` into a run folder, by the times in its metrics, which leave out compiling."""
    import jax
    import jax.numpy as jnp

    from lapwing.journal import Run, run_folders
    from lapwing.train import FitConfig, fit

    try:
        from lapwing.task import Task

        names = {"data": "data", "rate": "learning_rate"}
    except ImportError:  # Version 0.1.
        from lapwing.train import Task  # pyright: ignore[reportAttributeAccessIssue]

        names = {"data": "batch", "rate": "rate"}
    parts: dict[str, Any] = {
        "init": lambda key: jax.random.normal(key, (width, width)) / width,
        "loss": lambda w, x: (jnp.mean((jnp.tanh(x @ w) @ w - 1) ** 2), {}),
        names["data"]: lambda key, step: jax.random.normal(key, (width, width)),
    }
    options: dict[str, Any] = {
        "steps": steps,
        "steps_per_call": per_call,
        "laps_every": 0,
        names["rate"]: 1e-3,
    }

    def run() -> float:
        with tempfile.TemporaryDirectory() as folder:
            fit(Task(**parts), FitConfig(**options), Run.create("cost", runs_dir=folder), quiet=True)
            times = Run.open(run_folders(folder)[0]).columns()["time"]
        half = len(times) // 2
        return (times[-1] - times[half]) / (len(times) - 1 - half)

    return run


CASES: dict[str, Callable[[], Callable[[], Any]]] = {
    "gradient of a GRU, 16,200,256": lambda: gru(16, 200, 256),
    "gradient of a GRU, 1,500,256": lambda: gru(1, 500, 256),
    "gradient of a GRU, 64,100,512": lambda: gru(64, 100, 512),
    "gradient of a machine, 140 cycles": machine,
    "fit, one step a call": lambda: training(256, 1, 2000),
    "fit, 100 steps a call": lambda: training(16, 100, 100_000),
}


def worker() -> None:
    """Answers each case that is asked for with its seconds."""
    ready: dict[str, Callable[[], Any]] = {}
    for name in map(str.strip, sys.stdin):
        if name not in ready:
            ready[name] = CASES[name]()
            ready[name]()
        print(json.dumps(_seconds(name, ready[name])), flush=True)


def _seconds(name: str, call: Callable[[], Any]) -> float:
    if name.startswith("fit"):
        return call()
    taken: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main(old: str, new: str) -> None:
    from lapwing.bench.measure import environment, save

    workers = {name: _start(source) for name, source in (("old", old), ("new", new))}
    results: dict[str, Any] = {"environment": environment(), "cases": {}}
    for case in CASES:
        rounds = []
        for number in range(ROUNDS):
            order = list(workers) if number % 2 else list(workers)[::-1]
            rounds.append({name: _ask(workers[name], case) for name in order})
        medians = {name: statistics.median(each[name] for each in rounds) for name in workers}
        ratio = statistics.median(each["new"] / each["old"] for each in rounds)
        results["cases"][case] = {**medians, "ratio": ratio}
        print(
            f"{case}: old {medians['old']:.3g} s, new {medians['new']:.3g} s, new/old {ratio:.3f}", flush=True
        )
    save(results, "checkouts", "benchmarks/results")


def _start(source: str) -> subprocess.Popen[str]:
    variables = {**os.environ, "PYTHONPATH": os.path.abspath(source)}
    words = [sys.executable, os.path.abspath(__file__), "--worker"]
    return subprocess.Popen(words, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _ask(process: subprocess.Popen[str], case: str) -> float:
    assert process.stdin
    assert process.stdout
    process.stdin.write(case + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


if __name__ == "__main__":
    worker() if sys.argv[1:] == ["--worker"] else main(*sys.argv[1:])
