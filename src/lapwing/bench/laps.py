"""What measuring costs: the overhead of one phase and one step of `Laps`, and its memory after a long run.

Each number is the best of several rounds less that of an empty loop: other work on the machine can only add
time, so the smallest round is the nearest to the truth. Run it with `python -m lapwing.bench.laps [--json]`.
"""

import argparse
import json
import os
import platform
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from lapwing.timing import Laps

REPEATS = 2_000
ROUNDS = 10
LONG_RUN = 20_000


def run() -> dict[str, Any]:
    """Measures; the times are microseconds.

    >>> 0 < run()["phase_us"] < 100
    True
    """
    return {
        "phase_us": _cost(_phases(Laps())),
        "phase_in_phase_us": _cost(_nested_phases(Laps())),
        "phase_with_sync_us": _cost(_synced_phases(Laps())),
        "phase_with_cpu_us": _cost(_phases(Laps(cpu=True))),
        "step_us": _cost(Laps().step),
        "step_of_one_phase_us": _cost(_steps(Laps())),
        f"memory_kb_after_{LONG_RUN}_steps": _memory_kb(),
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


def _cost(once: Callable[[], None]) -> float:
    """Microseconds of one call beyond the call itself."""
    return round((_best(once) - _best(_nothing)) * 1e6, 3)


def _best(once: Callable[[], None]) -> float:
    return min(_round(once) for _ in range(ROUNDS)) / REPEATS


def _round(once: Callable[[], None]) -> float:
    begin = time.perf_counter()
    for _ in range(REPEATS):
        once()
    return time.perf_counter() - begin


def _memory_kb() -> int:
    tracemalloc.start()
    laps = Laps()
    step = _steps(laps)
    for _ in range(LONG_RUN):
        step()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round(size / 1000)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lapwing.bench.laps", description="What measuring costs.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    as_json = parser.parse_args().json
    result = run()
    lines = json.dumps(result, indent=2) if as_json else "\n".join(f"{k:32} {v}" for k, v in result.items())
    print(lines)


if __name__ == "__main__":
    main()
