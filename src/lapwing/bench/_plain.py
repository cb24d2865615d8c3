"""How a benchmark without jax measures: the best of several rounds, since other work can only add time."""

import os
import platform
import time
from collections.abc import Callable
from typing import Any


class BenchError(ValueError):
    """An option of a benchmark that makes no sense."""


def seconds(act: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


def best(act: Callable[[], Any], rounds: int, repeats: int) -> float:
    """Seconds of one call, in the best of the rounds of so many calls.

    >>> best(lambda: time.sleep(0.001), rounds=2, repeats=3) >= 0.001
    True
    """
    if rounds < 1:
        raise BenchError(f"rounds should be at least 1, but is {rounds}")

    def once() -> None:
        for _ in range(repeats):
            act()

    return min(seconds(once) for _ in range(rounds)) / repeats


def machine() -> dict[str, Any]:
    """What the numbers were taken on."""
    return {"python": platform.python_version(), "cores": os.cpu_count(), "machine": platform.machine()}


def show(results: dict[str, Any]) -> None:
    """Prints a number a line."""
    for name, value in results.items():
        print(f"{name:32} {value}")
