"""The same bits after many kills, also on a GPU: a run that is killed at random moments and resumed, against one that
is left alone, and against another one that is left alone, in fresh processes.

Each process is killed by SIGKILL, at once or up to a second after it has written its first new row of metrics.
"""

import dataclasses
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lapwing.bench.measure import environment, main, progress, save
from lapwing.experiments import find
from lapwing.journal import Run, run_folders
from lapwing.train import Checkpointing, Stop, fit


@dataclass(frozen=True)
class Config:
    """The same bits after many kills."""

    name: str = "latent-thinker"
    """experiment, or a file; the thinker looks tokens up, whose gradient adds in any order on a GPU"""
    steps: int = 4000
    """steps of the run; it must last longer than all kills"""
    kills: int = 25
    """how often the process is killed"""
    seed: int = 0
    """of the moments at which it is killed"""
    compile_again: bool = True
    """the second run that is left alone finds no programs that were kept; without scatters and convolutions its kernels
    may be others then"""
    deterministic: bool = True
    """train with deterministic operations"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""


def run(config: Config) -> dict[str, Any]:
    """Trains and kills; says whether all runs have the same parameters and metrics."""
    moments, began = random.Random(config.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        alone, again, killed = (Path(folder, name) for name in ("alone", "again", "killed"))
        for each in (alone, again):
            _finish(each, config, "another" if each == again and config.compile_again else "one")
            progress(f"left alone: {each.name}", {})
        done = 0
        while done < config.kills and _kill(killed, config, moments):
            done += 1
            progress(f"killed {done} times", {})
        _finish(killed, config)
        first, second, third = (Run.open(run_folders(each)[0]) for each in (alone, again, killed))
        results: dict[str, Any] = {
            "kills": done,
            "restarts": sum(event["event"] == "restarted" for event in third.events()),
            "two fresh processes": _differences(first, second),
            "killed and resumed": _differences(first, third),
            "compiled": {
                each.name: run.environment["compiled"] for each, run in ((alone, first), (again, second))
            },
            "minutes": (time.monotonic() - began) / 60,
        }
    results["environment"] = environment()
    save(results, f"kills-{Path(config.name).stem}", config.out)
    return results


def show(results: dict[str, Any]) -> None:
    """Prints the results for a person."""
    for pair in ("two fresh processes", "killed and resumed"):
        print(f"{pair}: {', '.join(results[pair]) or 'the same bits'}")
    print(f"{results['kills']} kills in {results['minutes']:.1f} minutes")


def _differences(one: Run, other: Run) -> list[str]:
    """The parameters and metrics that differ in any bit."""
    a, b = (dict(jax.tree_util.tree_leaves_with_path(run.params("newest"))) for run in (one, other))
    found = [
        f"params{jax.tree_util.keystr(name)}"
        for name in a
        if np.asarray(a[name]).tobytes() != np.asarray(b[name]).tobytes()
    ]
    a, b = one.columns(), other.columns()
    names = [name for name in a if name != "time"]
    return found + [f"metric {name}" for name in names if a[name].tobytes() != b[name].tobytes()]


def _start(runs: Path, config: Config, cache: str = "one") -> subprocess.Popen[bytes]:
    code = "import sys; from benchmarks.kills import _train; _train(*sys.argv[1:])"
    words = [str(runs), config.name, str(config.steps), str(config.deterministic)]
    kept = {"XDG_CACHE_HOME": str(runs.parent / f"{cache}-cache")}  # The programs that are kept.
    return subprocess.Popen([sys.executable, "-c", code, *words], env={**os.environ, **kept})


def _finish(runs: Path, config: Config, cache: str = "one") -> None:
    if _start(runs, config, cache).wait():
        raise SystemExit("the training failed")


def _kill(runs: Path, config: Config, moments: random.Random) -> bool:
    """Whether the process could be killed before it had finished."""
    size, process = _size(runs), _start(runs, config)
    while _size(runs) <= size and process.poll() is None:
        time.sleep(0.01)
    time.sleep(moments.choice([0.0, moments.uniform(0, 1)]))
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def _size(runs: Path) -> int:
    return sum(path.stat().st_size for path in runs.glob("*/metrics.jsonl"))


def _train(runs: str, name: str, steps: str, deterministic: str) -> None:
    """What the processes do."""
    experiment, there = find(name), run_folders(Path(runs)) if Path(runs).exists() else []
    options = dataclasses.replace(
        experiment.Config(),
        steps=int(steps),
        deterministic=deterministic == "True",
        laps_every=0,
        checkpoint=Checkpointing(seconds=0.2),
        stop=Stop(),
    )
    run = Run.reopen(there[0]) if there else Run.create(name, options, runs_dir=runs)
    fit(experiment.build(options), options, run, quiet=True)


if __name__ == "__main__":
    main(Config, run, show)
