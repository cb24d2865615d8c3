"""The progress of a run: a bar on a terminal, a line every few seconds elsewhere, or nothing."""

import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Self

from lapwing.core import format_wait

from ._state import device_name

_SPEED_OVER_S = 10.0


class Progress:
    """Shows nothing. The other kinds are shown inside their `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, done: int, latest: Mapping[str, float], best: str, *, last: bool = False) -> None:
        """Shows the newest metrics after `done` steps. Called often: most calls only look at the clock."""

    def say(self, text: str) -> None:
        """Prints an event."""


def progress(steps: int, quiet: bool) -> Progress:
    """The kind for where standard output goes."""
    if quiet:
        return Progress()
    return _Bar(steps) if sys.stdout.isatty() else _Lines(steps)


class _Lines(Progress):
    _every_s = 5.0

    def __init__(self, steps: int):
        self._steps = steps
        self._next = 0.0
        self._speed = _Speed()

    def show(self, done: int, latest: Mapping[str, float], best: str, *, last: bool = False) -> None:
        now = time.monotonic()
        if (now >= self._next or last) and latest:
            self._next = now + self._every_s
            self._speed.add(done, now)
            self._draw(done, _numbers(latest, best) + self._speed.words(self._steps - done))

    def say(self, text: str) -> None:
        print(text, flush=True)

    def _draw(self, done: int, text: str) -> None:
        self.say(f"step {done}/{self._steps}  {text}")


class _Bar(_Lines):
    """Drawn by the loop, not by a thread, which would take time from it."""

    _every_s = 0.2

    def __init__(self, steps: int):
        # Here, since only a terminal needs it: a machine that just computes may be without rich.
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bars

        super().__init__(steps)
        columns = [BarColumn(bar_width=20), MofNCompleteColumn(), TextColumn("{task.description}")]
        self._bars = Bars(*columns, console=Console(highlight=False), auto_refresh=False)
        self._task = self._bars.add_task("starting", total=steps)

    def __enter__(self) -> Self:
        self._bars.start()
        self._bars.update(self._task, description=f"compiling for {device_name()}", refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, text: str) -> None:
        self._bars.console.print(text, markup=False)

    def _draw(self, done: int, text: str) -> None:
        self._bars.update(self._task, completed=done, description=text, refresh=True)


class _Speed:
    """Steps per second over the last seconds; the first step, which compiled, does not count."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque()

    def add(self, done: int, now: float) -> None:
        if self._seen and done < self._seen[-1][0]:
            self._seen.clear()  # The run was rolled back.
        self._seen.append((done, now))
        while len(self._seen) > 2 and now - self._seen[0][1] > _SPEED_OVER_S:
            self._seen.popleft()

    def words(self, left: int) -> str:
        (first, start), (last, end) = self._seen[0], self._seen[-1]
        if last == first or end == start:
            return ""
        speed = (last - first) / (end - start)
        time_left = f"  {format_wait(left / speed)} left" if left > 0 else ""
        shown = f"{speed:.0f}" if speed >= 100 else f"{speed:.3g}"
        return f"  {shown} steps/s{time_left}"


def _numbers(latest: Mapping[str, float], best: str) -> str:
    loss = f"loss {latest['loss']:.4g}" + (f" ({best})" if best else "")
    rates = [f"{name} {value:.3g}" for name, value in latest.items() if name.startswith("effective_")]
    return "  ".join([loss, *rates, f"gradient_norm {latest['gradient_norm']:.3g}"])
