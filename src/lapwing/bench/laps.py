"""The cost of measuring: the overhead of one phase and one step of `Laps`, and its memory after a long run.

Each number is the best of several rounds minus that of an empty loop. Without jax, as the layer itself.
"""

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lapwing.timing import Laps

from .measure import best, machine, show

__all__ = ["Config", "run", "show"]

REPEATS = 2_000


@dataclass(frozen=True)
class Config:
    """The cost of measuring."""

    rounds: int = 10
    """rounds of each measurement; the best counts"""
    long_run: int = 20_000
    """steps after which the memory is measured"""


def run(config: Config) -> dict[str, Any]:
    """Measures; the times are microseconds.

    >>> "phase_us" in run(Config(rounds=1, long_run=10))
    True
    """

    def cost(once: Callable[[], None]) -> float:
        spent = best(once, config.rounds, REPEATS) - best(_nothing, config.rounds, REPEATS)
        return round(spent * 1e6, 3)

    return {
        "phase_us": cost(_phases(Laps())),
        "phase_in_phase_us": cost(_nested_phases(Laps())),
        "phase_with_sync_us": cost(_synced_phases(Laps())),
        "phase_with_cpu_us": cost(_phases(Laps(cpu=True))),
        "step_us": cost(Laps().step),
        "step_of_one_phase_us": cost(_steps(Laps())),
        f"memory_kb_after_{config.long_run}_steps": _memory_kb(config.long_run),
        **machine(),
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


def _memory_kb(steps: int) -> int:
    tracemalloc.start()
    laps = Laps()
    step = _steps(laps)
    for _ in range(steps):
        step()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round(size / 1000)
