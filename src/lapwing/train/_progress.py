"""What a person sees while it trains: a bar on a terminal, a line now and then elsewhere, or nothing."""

import sys
import time
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from ._logbook import Logbook

_SECONDS_BETWEEN_LINES = 5.0
_SECONDS_BETWEEN_DRAWINGS = 0.2


class Progress(Protocol):
    """Shown while in its `with` block."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def show(self, done: int, logbook: Logbook) -> None: ...


def progress(steps: int, quiet: bool) -> Progress:
    """The kind that suits where standard output goes."""
    if quiet:
        return _Silent()
    return _Bar(steps) if sys.stdout.isatty() else _Lines(steps)


class _Silent:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, done: int, logbook: Logbook) -> None: ...


class _Lines(_Silent):
    def __init__(self, steps: int):
        self._steps = steps
        self._next = 0.0
        self._first: tuple[int, float] | None = None

    def show(self, done: int, logbook: Logbook) -> None:
        now = time.monotonic()
        if now < self._next and done < self._steps:
            return
        self._next = now + _SECONDS_BETWEEN_LINES
        print(f"step {done}/{self._steps}  {_numbers(logbook)}{self._speed(done, now)}", flush=True)

    def _speed(self, done: int, now: float) -> str:
        """Since the first line, before which it was compiled."""
        if self._first is None:
            self._first = done, now
        steps, seconds = done - self._first[0], now - self._first[1]
        return f"  {steps / seconds:.0f} steps/s" if steps and seconds else ""


class _Bar:
    """Drawn when there is news and not by a thread of its own, which would take time from the loop."""

    def __init__(self, steps: int):
        columns = [BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn()]
        self._bars = Bars(*columns, console=Console(highlight=False), auto_refresh=False)
        self._task = self._bars.add_task("compiling", total=steps)
        self._steps = steps
        self._next = 0.0

    def __enter__(self) -> Self:
        self._bars.start()
        self._bars.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def show(self, done: int, logbook: Logbook) -> None:
        now = time.monotonic()
        if now < self._next and done < self._steps:
            return
        self._next = now + _SECONDS_BETWEEN_DRAWINGS
        self._bars.update(self._task, completed=done, description=_numbers(logbook), refresh=True)


def _numbers(logbook: Logbook) -> str:
    latest = logbook.latest
    if not latest:
        return ""
    told = f"loss {latest['loss']:.4g} (best {logbook.best_loss:.4g})"
    return f"{told}  rate {latest['rate']:.3g}  gradient {latest['gradient_norm']:.3g}"
