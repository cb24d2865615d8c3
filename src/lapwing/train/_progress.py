"""What a person sees while it trains: a bar on a terminal, a line now and then elsewhere, or nothing."""

import abc
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars

from lapwing.core import format_wait

from ._state import device_name

if TYPE_CHECKING:
    from ._loop import Loop

_SECONDS_BETWEEN_LINES = 5.0
_SECONDS_BETWEEN_DRAWINGS = 0.2
_SPEED_OVER_S = 10.0


class Progress(Protocol):
    """Shown while in its `with` block."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def show(self, loop: "Loop", *, last: bool = False) -> None:
        """Where the run is. Called after every call of the device, so it is nearly always a look at the clock."""

    def say(self, text: str) -> None:
        """Something that happened."""


def progress(steps: int, quiet: bool) -> Progress:
    """The kind that suits where standard output goes."""
    if quiet:
        return _Silent()
    return _Bar(steps) if sys.stdout.isatty() else _Lines(steps)


class _Silent:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, loop: "Loop", *, last: bool = False) -> None: ...

    def say(self, text: str) -> None: ...


class _Shown(abc.ABC):
    """What the bar and the lines have in common: how often they are renewed, and what they say."""

    def __init__(self, steps: int, every_s: float):
        self._steps = steps
        self._every_s = every_s
        self._next = 0.0
        self._speed = _Speed()

    def show(self, loop: "Loop", *, last: bool = False) -> None:
        now = time.monotonic()
        if (now >= self._next or last) and loop.logbook.latest:
            self._next = now + self._every_s
            self._speed.add(loop.done, now)
            self._draw(loop.done, _numbers(loop) + self._speed.words(self._steps - loop.done))

    @abc.abstractmethod
    def _draw(self, done: int, text: str) -> None: ...


class _Lines(_Shown):
    def __init__(self, steps: int):
        super().__init__(steps, _SECONDS_BETWEEN_LINES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def say(self, text: str) -> None:
        print(text, flush=True)

    def _draw(self, done: int, text: str) -> None:
        self.say(f"step {done}/{self._steps}  {text}")


class _Bar(_Shown):
    """Drawn when there is news and not by a thread of its own, which would take time from the loop."""

    def __init__(self, steps: int):
        super().__init__(steps, _SECONDS_BETWEEN_DRAWINGS)
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
    """Steps a second over the last while; the first step was compiled, so it does not count."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque()

    def add(self, done: int, now: float) -> None:
        if self._seen and done < self._seen[-1][0]:
            self._seen.clear()  # The run went back.
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


def _numbers(loop: "Loop") -> str:
    latest, best = loop.logbook.latest, loop.watch.best
    told = f"loss {latest['loss']:.4g}" + (f" (best {best:.4g})" if best < float("inf") else "")
    return f"{told}  rate {latest['learning_rate']:.3g}  gradient {latest['gradient_norm']:.3g}"
