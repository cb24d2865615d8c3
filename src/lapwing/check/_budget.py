"""The time a check may take: it measures one call, announces the cost, and samples what does not fit."""

import time
from collections.abc import Callable
from typing import Any

import jax

from lapwing.core import format_seconds

Tell = Callable[[str], None]


class Budget:
    """A number of seconds, counted from now.

    >>> budget = Budget(10.0, clock=iter([0.0, 4.0, 11.0]).__next__)
    >>> budget.left(), budget.left()
    (6.0, 0.0)
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self.seconds = seconds

    def left(self) -> float:
        return max(0.0, self._end - self._clock())

    def plan(self, check: str, calls: int, each: float, tell: Tell | None) -> int:
        """How many of `calls` fit if one takes `each` seconds, at least one. Announces the cost with `tell`."""
        affordable = calls if each <= 0 else max(1, min(calls, int(self.left() / each)))
        if tell is not None:
            cost = f"{check}: {calls} calls of {format_seconds(each)}, about {format_seconds(calls * each)}"
            cut = f"; the budget allows {affordable} of them, drawn at random" if affordable < calls else ""
            tell(cost + cut)
        return affordable


def seconds_of(function: Callable[..., Any], *args: Any) -> float:
    """The seconds until the results of a call are ready. Call the function once before, so that it is compiled."""
    started = time.perf_counter()
    jax.block_until_ready(function(*args))
    return time.perf_counter() - started
