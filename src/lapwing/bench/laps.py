"""What measuring costs: the overhead of one phase and one step of `Laps`, and its memory after a long run.

Each number is the best of several rounds less that of an empty loop: other work on the machine can only add
time, so the smallest round is the nearest to the truth. No jax here: it would only be in the way.
"""

import os
import platform
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lapwing.timing import Laps

REPEATS = 2_000


@dataclass(frozen=True)
class Config:
    """What measuring costs."""

    rounds: int = 10
    """how often each thing is timed; the best round counts"""
    long_run: int = 20_000
    """steps after which the memory is measured"""


def run(config: Config) -> dict[str, Any]:
    """Measures; the times are microseconds.

    >>> 0 < run(Config(rounds=1, long_run=10))["phase_us"] < 100
    True
    """

    def cost(once: Callable[[], None]) -> float:
        return round((_best(once, config.rounds) - _best(_nothing, config.rounds)) * 1e6, 3)

    return {
        "phase_us": cost(_phases(Laps())),
        "phase_in_phase_us": cost(_nested_phases(Laps())),
        "phase_with_sync_us": cost(_synced_phases(Laps())),
        "phase_with_cpu_us": cost(_phases(Laps(cpu=True))),
        "step_us": cost(Laps().step),
        "step_of_one_phase_us": cost(_steps(Laps())),
        f"memory_kb_after_{config.long_run}_steps": _memory_kb(config.long_run),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
    }


def _phases(laps: Laps) -> Callable[[], None]:
    def once() -> None:
        with laps("attack"):
            pass

    return once


def _nested_phases(laps: Laps) -> Callable[[], None]:
    """The cost of the inner phase alone: the outer one stays open."""
    laps("attack").__enter__()
    return _phases(laps)


def _synced_phases(laps: Laps) -> Callable[[], None]:
    def once() -> None:
        with laps("attack", sync=_nothing):
            pass

    return once


def _steps(laps: Laps) -> Callable[[], None]:
    def once() -> None:
        with laps("attack"):
            pass
        laps.step()

    return once


def _nothing() -> None:
    pass


def _best(once: Callable[[], None], rounds: int) -> float:
    return min(_round(once) for _ in range(rounds)) / REPEATS


def _round(once: Callable[[], None]) -> float:
    begin = time.perf_counter()
    for _ in range(REPEATS):
        once()
    return time.perf_counter() - begin


def _memory_kb(steps: int) -> int:
    tracemalloc.start()
    laps = Laps()
    step = _steps(laps)
    for _ in range(steps):
        step()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round(size / 1000)


def show(results: dict[str, Any]) -> None:
    for name, value in results.items():
        print(f"{name:32} {value}")
