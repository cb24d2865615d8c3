"""Ctrl-C once: the run ends after its step, with a checkpoint. Twice: it ends at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """The signal that should end the run, if there was one."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if self.reason is not None:
            raise KeyboardInterrupt
        self.reason = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


@contextmanager
def interrupts() -> Iterator[Interrupt]:
    """Catches Ctrl-C and SIGTERM, in the main thread: Python allows no other one."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
