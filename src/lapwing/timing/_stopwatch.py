"""A stopwatch whose laps leave out the time it was stopped.

The idea is a running total of the current lap next to the moment the watch last went on: `stop` moves the
piece that has just ended into the total, so `stop, start, lap` adds two pieces where keeping only the last
moment would lose one.
"""

import time
from collections.abc import Callable
from typing import Self

Clock = Callable[[], float]


class Stopwatch:
    """Laps of running time; a call at a wrong moment does nothing and raises nothing.

    >>> seconds = 0.0
    >>> watch = Stopwatch(clock=lambda: seconds)
    >>> watch.start()
    >>> seconds = 1.0
    >>> watch.lap()
    >>> seconds = 2.0
    >>> watch.stop()   # the second that follows counts nowhere
    >>> seconds = 3.0
    >>> watch.start()
    >>> seconds = 4.0
    >>> watch.lap()
    >>> watch.lap_times()
    [1.0, 2.0]

    In a `with` statement it starts at the top and stops at the bottom, also when the block raises.

    Which clock? `time.perf_counter` (the default) is wall time: it goes on while this process waits, so a
    wait for a device, a disk or a sleep counts. `time.process_time` is the processor time of all threads of
    this process: a wait that sleeps counts nothing, and work on a GPU is nobody's processor time. Where the
    question is how long a step takes, and the step runs on a device, only wall time answers it.
    `Laps(cpu=True)` shows both side by side.
    """

    __slots__ = ("_clock", "_lap", "_laps", "_since")

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self._clock = clock
        self.reset()

    def start(self) -> None:
        """Goes on; the lap that was under way when the watch was stopped is continued."""
        if self._since is None:
            self._since = self._clock()

    def stop(self) -> None:
        """Stops; the time until the next `start` belongs to no lap."""
        if self._since is not None:
            self._lap += self._clock() - self._since
            self._since = None

    def lap(self) -> None:
        """Ends the current lap and begins the next; does nothing unless the watch runs."""
        if self._since is not None:
            now = self._clock()
            self._laps.append(self._lap + now - self._since)
            self._lap = 0.0
            self._since = now

    def lap_times(self) -> list[float]:
        """The seconds of each ended lap, as a list of the caller's own."""
        return list(self._laps)

    def reset(self) -> None:
        """As new: stopped, without laps."""
        self._laps: list[float] = []
        self._lap = 0.0
        self._since: float | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
