"""How benchmarks measure, and where they write their results. Importing this does not import jax.

Times on a shared machine are noise; ratios of rivals that take turns in one process are not, because what slows one in
a round slows the others too.
"""

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from lapwing.core import LapwingError, replace_file

VERSIONS = ("lapwing", "jax", "jaxlib", "numpy", "flax", "equinox", "llvmlite", "torch")


class BenchError(LapwingError, ValueError):
    """An invalid option of a benchmark."""


def alternate(
    rivals: Mapping[str, Callable[[], Any]],
    rounds: int = 7,
    seconds: float = 20.0,
    of: Callable[[list[float]], float] = statistics.median,
) -> dict[str, float]:
    """Median seconds of each rival, or another statistic `of` them. Each round runs all of them; after three rounds,
    time may end it early.

    >>> times = alternate({"short": lambda: None, "long": lambda: time.sleep(0.01)}, rounds=3)
    >>> times["long"] > times["short"]
    True
    """
    import jax

    times: dict[str, list[float]] = {name: [] for name in rivals}
    for run in rivals.values():
        jax.block_until_ready(run())
    begin = time.perf_counter()
    for done in range(rounds):
        if done >= 3 and time.perf_counter() - begin > seconds:
            break
        for name, run in rivals.items():
            times[name].append(seconds_of(lambda run=run: jax.block_until_ready(run())))
    return {name: of(found) for name, found in times.items()}


def seconds_of(call: Callable[[], Any]) -> float:
    """Seconds of one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def best(call: Callable[[], Any], rounds: int, repeats: int) -> float:
    """Seconds of one call: the mean of `repeats` calls, in the best of the rounds. Other work can only add time.

    >>> best(lambda: time.sleep(0.001), rounds=2, repeats=3) >= 0.001
    True
    """
    if rounds < 1:
        raise BenchError(f"rounds should be at least 1, but is {rounds}")

    def once() -> None:
        for _ in range(repeats):
            call()

    return min(seconds_of(once) for _ in range(rounds)) / repeats


def check_parts(parts: Iterable[str], known: Iterable[str]) -> None:
    """Raises an error for a part that a benchmark does not have.

    >>> check_parts(["step"], ["steps", "workers"])
    Traceback (most recent call last):
    lapwing.bench.measure.BenchError: parts are steps, workers, not 'step'
    """
    known = list(known)
    for part in parts:
        if part not in known:
            raise BenchError(f"parts are {', '.join(known)}, not {part!r}")


def check_ended(result: Any, what: str) -> None:
    """Raises an error for a training that Ctrl-C or SIGTERM ended: what it has learned is no result.

    >>> from types import SimpleNamespace
    >>> check_ended(SimpleNamespace(ended="finished", outcome=""), "replay, seed 1")
    >>> check_ended(SimpleNamespace(ended="stopped", outcome="by Ctrl-C, after 3 steps in 1 s"), "replay, seed 1")
    Traceback (most recent call last):
    lapwing.bench.measure.BenchError: replay, seed 1: ended by Ctrl-C, after 3 steps in 1 s; it is not written
    """
    if result.ended in ("stopped", "preempted"):
        raise BenchError(f"{what}: ended {result.outcome}; it is not written")


def progress(what: str, times: Mapping[str, float]) -> None:
    """Prints on stderr what was just measured."""
    numbers = ", ".join(f"{name} {seconds * 1e3:.2f} ms" for name, seconds in times.items())
    print(f"{what}: {numbers}", file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """The machine and the Python that the numbers were taken on."""
    return {"python": platform.python_version(), "cores": os.cpu_count(), "machine": platform.machine()}


def environment() -> dict[str, Any]:
    """The same with the device and the versions of the libraries."""
    import jax

    return {
        "device": jax.devices()[0].device_kind,
        "platform": jax.default_backend(),
        **machine(),
        "versions": {name: found for name in VERSIONS if (found := _version(name))},
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def save(results: dict[str, Any], name: str, out: str) -> Path | None:
    """Writes the results as JSON to the folder `out`; an empty name writes nothing."""
    if not out:
        return None
    path = Path(out) / f"{name}-{results['environment']['platform']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(results, indent=1) + "\n")
    return path


def main(config: type, run: Callable[[Any], dict], show: Callable[[dict], None]) -> None:
    """The command line of a benchmark, from the fields of its config, without the packages of `lapwing`'s own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    for field in dataclasses.fields(config):
        name, default = f"--{field.name.replace('_', '-')}", field.default
        assert not isinstance(default, dataclasses._MISSING_TYPE)
        if isinstance(default, bool):
            parser.add_argument(name, action=argparse.BooleanOptionalAction, default=default)
        elif isinstance(default, tuple):
            parser.add_argument(name, nargs="*", type=type(default[0]) if default else str, default=default)
        else:
            parser.add_argument(name, type=type(default), default=default)
    options = vars(parser.parse_args())
    as_json = options.pop("json")
    results = run(config(**{k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}))
    if as_json:
        print(json.dumps(results, indent=1))
    else:
        show(results)


def show(results: dict[str, Any]) -> None:
    """Prints one number per line."""
    for name, value in results.items():
        print(f"{name:32} {value}")
