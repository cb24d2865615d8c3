"""A stopwatch whose laps exclude the time it was stopped.

It keeps a running total of the current lap and the time of the last start: `stop` adds the piece that has just ended to
the total, so that `stop, start, lap` counts both pieces.
"""

import time
from collections.abc import Callable
from typing import Self

Clock = Callable[[], float]
"""A function that returns seconds, such as `time.perf_counter`."""


class Stopwatch:
    """Laps of running time. A call in the wrong state (`stop` when stopped) does nothing.

    >>> seconds = 0.0
    >>> watch = Stopwatch(clock=lambda: seconds)
    >>> watch.start()
    >>> seconds = 1.0
    >>> watch.lap()
    >>> seconds = 2.0
    >>> watch.stop()   # the next second counts in no lap
    >>> seconds = 3.0
    >>> watch.start()
    >>> seconds = 4.0
    >>> watch.lap()
    >>> watch.lap_times()
    [1.0, 2.0]

    In a `with` statement it starts at the top and stops at the bottom, also when the block raises.

    `time.perf_counter`, the default clock, is wall time: waiting for a device, a disk or a sleep counts.
    `time.process_time` is the processor time of all threads of this process: sleeping does not count, nor does work on
    a GPU. To time steps that run on a device, use wall time. `Laps(cpu=True)` shows both.
    """

    __slots__ = ("_clock", "_lap", "_laps", "_since")

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self._clock = clock
        self.reset()

    def start(self) -> None:
        """Starts, or continues the lap that was stopped."""
        if self._since is None:
            self._since = self._clock()

    def stop(self) -> None:
        """Stops; the time until the next `start` counts in no lap."""
        if self._since is not None:
            self._lap += self._clock() - self._since
            self._since = None

    def lap(self) -> None:
        """Ends the current lap and begins the next, if the watch is running."""
        if self._since is not None:
            now = self._clock()
            self._laps.append(self._lap + now - self._since)
            self._lap = 0.0
            self._since = now

    def lap_times(self) -> list[float]:
        """The seconds of each finished lap, as a new list."""
        return list(self._laps)

    def reset(self) -> None:
        """Stops and removes all laps."""
        self._laps: list[float] = []
        self._lap = 0.0
        self._since: float | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
