"""The steps of a run as a bounded number of bars, for a picture.

Each bar is the mean of `stride` consecutive steps. When all bars are full, neighbours are merged and the stride
doubles: no step is left out, so the bars always add up to the run, and a slow step cannot hide between two others.
"""

from dataclasses import dataclass
from itertools import zip_longest


@dataclass(frozen=True, slots=True)
class StepSeries:
    """`seconds[bar][part]` is the mean time that a step of the bar spent in `parts[part]`, with the rest as a part.

    >>> from lapwing.timing import Laps
    >>> laps = Laps()
    >>> for _ in range(3):
    ...     with laps("forward"):
    ...         pass
    ...     laps.step()
    >>> series = laps.summary().series
    >>> series.parts, series.steps
    (('unaccounted', 'forward'), 2)
    """

    stride: int
    steps: int
    parts: tuple[str, ...]
    seconds: tuple[tuple[float, ...], ...]


class Bars:
    """Sums the parts of steps.

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
        """Adds a step; parts that are new come last."""
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
