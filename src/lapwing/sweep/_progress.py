"""The progress of a sweep, as one line on a terminal."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

from lapwing.core import format_wait

_CLEAR = "\r\x1b[K"


class Progress:
    """Counts points, and estimates the time left from those that have ended.

    >>> now = iter([0.0, 30.0])
    >>> progress = Progress(total=5, done=1, clock=lambda: next(now))
    >>> progress.begin(2); progress.end(failed=False)
    >>> str(progress)
    '2/5 done, 1 running, 2 min left'
    """

    def __init__(
        self,
        total: int,
        done: int = 0,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._total, self._done, self._before = total, done, done
        self._running = self._failed = 0
        self._stream = stream or sys.stderr
        self._shown = not quiet and self._stream.isatty()
        self._clock = clock
        self._start = clock()

    def begin(self, count: int = 1) -> None:
        self._running += count
        self._draw()

    def end(self, *, failed: bool) -> None:
        self._running = max(0, self._running - 1)  # A cluster does not report starts.
        self._done += 1
        self._failed += failed
        self._draw()

    def close(self) -> None:
        if self._shown:
            self._stream.write(_CLEAR)
            self._stream.flush()

    def __str__(self) -> str:
        counts = {"running": self._running, "failed": self._failed}
        parts = [f"{self._done}/{self._total} done", *(f"{n} {name}" for name, n in counts.items() if n)]
        ended, left = self._done - self._before, self._total - self._done
        if ended and left:
            parts.append(f"{format_wait(left * (self._clock() - self._start) / ended)} left")
        return ", ".join(parts)

    def _draw(self) -> None:
        if self._shown:
            self._stream.write(f"{_CLEAR}{self}")
            self._stream.flush()
