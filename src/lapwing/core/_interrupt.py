"""Ctrl-C once: the run ends after its step, with a checkpoint, as stopped. Twice: it ends at once.

SIGTERM is how a cluster takes a machine back, with some 30 seconds of grace. The run ends in the same way, but as
preempted: nobody wanted it to end. Schedulers may send it several times, so only Ctrl-C ends at once.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Literal

Handler = Callable[[int, FrameType | None], object]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Preempted(KeyboardInterrupt):
    """SIGTERM where nothing can be finished first: ends like Ctrl-C."""


class Interrupt:
    """The signal that should end the run, if there was one."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if self.reason is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.reason = self.reason or ("Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)


def end_after(reason: str) -> Literal["stopped", "preempted"]:
    """How a run ends that an `Interrupt` ended.

    >>> end_after("Ctrl-C"), end_after("SIGTERM, sent to process 1")
    ('stopped', 'preempted')
    """
    return "preempted" if reason.startswith(signal.SIGTERM.name) else "stopped"


@contextmanager
def interrupts() -> Iterator[Interrupt]:
    """Catches Ctrl-C and SIGTERM, in the main thread: Python allows no other one."""
    interrupt = Interrupt()
    with _handled_by(interrupt):
        yield interrupt


@contextmanager
def raised_interrupts() -> Iterator[None]:
    """Ctrl-C raises `KeyboardInterrupt`, also where a shell has it ignored, and SIGTERM `Preempted`, once."""
    with _handled_by(_Raise()):
        yield


class _Raise:
    def __init__(self) -> None:
        self._is_ending = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        was_ending, self._is_ending = self._is_ending, True
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        if not was_ending:
            raise Preempted


@contextmanager
def _handled_by(handler: Handler) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)
