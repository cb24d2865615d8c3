"""Runs mutations in this process, with limits, and collects what they find."""

import faulthandler
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterable
from pathlib import Path
from random import Random
from types import FrameType
from typing import NamedTuple

from .kinds import KINDS

LIMIT_S = 5.0
"""Of CPU time, for all commands of a mutation. Of the clock, which stands for other programs too, ten times as much."""
LIMIT_BYTES = 1 << 30


class Found(NamedTuple):
    """What a mutation found: where, in a line; its number; the traceback."""

    where: str
    number: int
    text: str


class TooLong(BaseException):
    """A mutation that takes longer than the limit. No `except Exception` swallows it."""


def run(kind: str, numbers: Iterable[int], everything: bool = False, limits: bool = False) -> list[Found]:
    """Reads mutations of a kind. `everything` also reads what needs jax; `limits` are set for the whole process."""
    found = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target = KINDS[kind](Path(folder), everything)
        target(Random(0))  # Imports what it needs.
        if limits:
            _limit_memory()
        before = {each: signal.signal(each, _too_long) for each in (signal.SIGALRM, signal.SIGPROF)}
        try:
            for number in numbers:
                _set_timers(LIMIT_S)
                try:
                    target(Random(f"{kind} {number}"))
                except (Exception, TooLong) as error:
                    found.append(Found(_where(error), number, traceback.format_exc()))
                finally:
                    _set_timers(0)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return found


def _where(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "lapwing" in frame.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "the fuzzer"
    return f"{type(error).__name__} at {place}: {str(error)[:100]!r}"


def _set_timers(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)


def _too_long(number: int, _frame: FrameType | None) -> None:
    limit = f"{LIMIT_S:g} s of CPU time" if number == signal.SIGPROF else f"{10 * LIMIT_S:g} s"
    raise TooLong(f"it takes more than {limit}")


def _limit_memory() -> None:
    """What was imported so far does not count: address space is not memory, and some libraries map much of it."""
    faulthandler.enable()
    if sys.platform != "linux":
        return
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT_BYTES, resource.RLIM_INFINITY))
