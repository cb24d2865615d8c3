"""Bounds in microseconds on machines of any speed: a cost is measured beside plain Python, in turns."""

import math
import time
from collections.abc import Callable

QUIET = 0.45e-6
"""What one call of `_plain_python` takes on a quiet core of the machine on which the bounds were set."""


def quiet_seconds(once: Callable[[], object], calls: int = 100, rounds: int = 300) -> float:
    """The time of one call, as if this machine were that quiet core, if it is slower; the best of `rounds`.

    A busy machine slows a call and plain Python alike, so it does not break a bound; a slower call does. The rounds are
    short, so that some of them are not interrupted.

    >>> 0 < quiet_seconds(lambda: None) < 1e-6
    True
    """
    cost = slower = math.inf
    for _ in range(rounds):
        cost = min(cost, _seconds(once, calls))
        slower = min(slower, slowness(rounds=1))
    return cost / slower


def slowness(rounds: int = 300) -> float:
    """How many times as long as on that quiet core plain Python takes now, at least 1; the best of `rounds`.

    >>> 1 <= slowness() < 100
    True
    """
    return max(1.0, min(_seconds(_plain_python, 100) for _ in range(rounds)) / QUIET)


def _seconds(once: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        once()
    return (time.perf_counter() - start) / calls


def _plain_python() -> int:
    total = 0
    for i in range(20):
        total += i
    return total
