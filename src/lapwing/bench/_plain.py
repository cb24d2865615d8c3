"""How a benchmark without jax measures: the best of several rounds, since other work can only add time."""

import os
import platform
import time
from collections.abc import Callable, Iterable
from typing import Any

from lapwing.core import LapwingError


class BenchError(LapwingError, ValueError):
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


def check_parts(parts: Iterable[str], known: Iterable[str]) -> None:
    """Refuses a part that a benchmark does not have.

    >>> check_parts(["step"], ["steps", "workers"])
    Traceback (most recent call last):
    lapwing.bench._plain.BenchError: parts are steps, workers, but there is 'step'
    """
    known = list(known)
    for part in parts:
        if part not in known:
            raise BenchError(f"parts are {', '.join(known)}, but there is {part!r}")


def machine() -> dict[str, Any]:
    """What the numbers were taken on."""
    return {"python": platform.python_version(), "cores": os.cpu_count(), "machine": platform.machine()}


def show(results: dict[str, Any]) -> None:
    """Prints a number a line."""
    for name, value in results.items():
        print(f"{name:32} {value}")
