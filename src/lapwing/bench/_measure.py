"""How a benchmark measures: rivals in turn, in one process, medians; and where results are written.

Times on a shared machine are noise, ratios taken like this are not: what slows one rival in a round slows the others
in the same round too. Runs without the command line's packages, as `python -m lapwing.bench.SUITE`.
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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

VERSIONS = ("lapwing", "jax", "jaxlib", "numpy", "flax", "equinox", "torch")


def alternate(
    rivals: Mapping[str, Callable[[], Any]], rounds: int = 7, seconds: float = 20.0
) -> dict[str, float]:
    """Median seconds of each rival. Every round runs all of them; rounds end early when the time is spent.

    >>> times = alternate({"short": lambda: None, "long": lambda: time.sleep(0.01)}, rounds=3)
    >>> times["long"] > times["short"]
    True
    """
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for run in rivals.values():
        jax.block_until_ready(run())
    begin = time.perf_counter()
    for done in range(rounds):
        if done >= 3 and time.perf_counter() - begin > seconds:
            break
        for name, run in rivals.items():
            start = time.perf_counter()
            jax.block_until_ready(run())
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def progress(what: str, times: Mapping[str, float]) -> None:
    """Say on stderr what has just been measured, so that a long benchmark is seen to go on."""
    numbers = ", ".join(f"{name} {seconds * 1e3:.2f} ms" for name, seconds in times.items())
    print(f"{what}: {numbers}", file=sys.stderr, flush=True)


def environment() -> dict[str, Any]:
    """What the numbers were taken on."""
    return {
        "device": jax.devices()[0].device_kind,
        "platform": jax.default_backend(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: found for name in VERSIONS if (found := _version(name))},
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def save(results: dict[str, Any], name: str, folder: str) -> Path | None:
    """Write the results as JSON under `folder`; an empty name of a folder writes nothing."""
    if not folder:
        return None
    path = Path(folder) / f"{name}-{results['environment']['platform']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path


def main(config: type, run: Callable[[Any], dict], show: Callable[[dict], None]) -> None:
    """The command line of a suite, from the fields of its config: `--name value`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    for field in dataclasses.fields(config):
        default = field.default
        assert not isinstance(default, dataclasses._MISSING_TYPE)
        if isinstance(default, bool):
            parser.add_argument(f"--{field.name}", action=argparse.BooleanOptionalAction, default=default)
        elif isinstance(default, tuple):
            parser.add_argument(f"--{field.name}", nargs="*", default=default)
        else:
            parser.add_argument(f"--{field.name}", type=type(default), default=default)
    options = vars(parser.parse_args())
    as_json = options.pop("json")
    results = run(config(**{k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}))
    if as_json:
        print(json.dumps(results, indent=1))
    else:
        show(results)
