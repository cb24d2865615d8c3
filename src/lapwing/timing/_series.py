"""The steps of a run as a bounded row of bars, for a picture.

Each bar holds the mean of `stride` steps in a row. When all bars are full, neighbours are joined and the
stride doubles: nothing is left out, so the bars add up to the run at every length, and a slow step between
two kept ones cannot hide.
"""

from dataclasses import dataclass
from itertools import zip_longest


@dataclass(frozen=True, slots=True)
class StepSeries:
    """`seconds[bar][part]` is the mean time a step of the bar spent in `parts[part]`, the rest included."""

    stride: int
    steps: int
    parts: tuple[str, ...]
    seconds: tuple[tuple[float, ...], ...]


class Bars:
    """Adds up the parts of steps.

    >>> bars = Bars(room=2)
    >>> for step in range(4):
    ...     bars.add([float(step)])
    >>> bars.series(("attack",))
    StepSeries(stride=2, steps=4, parts=('attack',), seconds=((0.5,), (2.5,)))
    """

    __slots__ = ("_room", "_steps", "_stride", "_sums")

    def __init__(self, room: int) -> None:
        self._room = room
        self._stride = 1
        self._steps = 0
        self._sums: list[list[float]] = []

    def add(self, parts: list[float]) -> None:
        """One step; a part that turns up later than others stands behind them."""
        if self._steps == self._room * self._stride:
            sums = self._sums
            self._sums = [_plus(sums[i], sums[i + 1]) for i in range(0, len(sums), 2)]
            self._stride *= 2
        if self._steps % self._stride == 0:
            self._sums.append(parts)
        else:
            self._sums[-1] = _plus(self._sums[-1], parts)
        self._steps += 1

    def series(self, parts: tuple[str, ...]) -> StepSeries:
        means = []
        for bar, sums in enumerate(self._sums):
            steps = min(self._stride, self._steps - bar * self._stride)
            padded = sums + [0.0] * (len(parts) - len(sums))
            means.append(tuple(seconds / steps for seconds in padded))
        return StepSeries(self._stride, self._steps, parts, tuple(means))


def _plus(one: list[float], other: list[float]) -> list[float]:
    return [a + b for a, b in zip_longest(one, other, fillvalue=0.0)]
