"""Count, total, maximum and a fair sample of a stream of durations, in bounded memory.

Quantiles need the durations themselves, and a long run has too many. A reservoir sample keeps `room` of them such that
each one is equally likely to be kept. Keeping every k-th would be biased: phases come in patterns (every second call is
the slow one), and a regular choice sees only a part of a pattern.
"""

import math
from collections.abc import Callable


class Tally:
    """Statistics of a stream of durations.

    >>> import random
    >>> tally = Tally(room=100, random=random.Random(0).random)
    >>> for seconds in (3.0, 1.0, 2.0):
    ...     tally.add(seconds)
    >>> tally.count, tally.total, tally.max, tally.quantile(0.5)
    (3, 6.0, 3.0, 2.0)
    """

    __slots__ = ("_offered", "_random", "_room", "_sample", "count", "cpu", "max", "total")

    def __init__(self, room: int, random: Callable[[], float]) -> None:
        self._room = room
        self._random = random
        self._sample: list[float] = []
        self.clear()

    def clear(self) -> None:
        self.count = 0
        self.total = 0.0
        self.max = 0.0
        self.cpu = 0.0
        self._offered = 0
        self._sample.clear()

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        if seconds > self.max:
            self.max = seconds
        self._offer(seconds)

    def absorb(self, other: "Tally") -> None:
        """Adds the counts of `other`, and offers its sample."""
        self.count += other.count
        self.total += other.total
        self.cpu += other.cpu
        if other.max > self.max:
            self.max = other.max
        for seconds in other._sample:
            self._offer(seconds)

    def _offer(self, seconds: float) -> None:
        self._offered += 1
        if self._offered <= self._room:
            self._sample.append(seconds)
        else:
            slot = int(self._random() * self._offered)
            if slot < self._room:
                self._sample[slot] = seconds

    def quantile(self, q: float) -> float | None:
        """The quantile `q` of the sample, with linear interpolation."""
        if not self._sample:
            return None
        ordered = sorted(self._sample)
        position = q * (len(ordered) - 1)
        below, above = math.floor(position), math.ceil(position)
        return ordered[below] + (position - below) * (ordered[above] - ordered[below])
