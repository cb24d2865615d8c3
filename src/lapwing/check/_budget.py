"""How long a check may take: it measures a call, says what the rest will cost, and leaves out what does not fit."""

import time
from collections.abc import Callable

from lapwing.core import format_seconds

Tell = Callable[[str], None]


class Budget:
    """Seconds that may be spent, from now on.

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
        """How many of `calls` fit where one takes `each` seconds, at least one; the cost is told first."""
        affordable = calls if each <= 0 else max(1, min(calls, int(self.left() / each)))
        if tell is not None:
            what = f"{check}: {calls} calls of {format_seconds(each)}, about {format_seconds(calls * each)}"
            cut = (
                "" if affordable == calls else f"; {affordable} of them, drawn at random, fit into the budget"
            )
            tell(what + cut)
        return affordable
