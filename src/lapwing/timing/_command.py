"""Laps of another program: each line it prints, or each line with a marker, ends a step.

Its output is passed through unchanged as it arrives, so prompts and progress bars work; it shares our standard input
and error. The time of a line is when it arrives here, so a program that buffers its output shows up in bursts. Python
programs buffer when they write to a pipe, so PYTHONUNBUFFERED is set by default.
"""

import codecs
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from lapwing.core import LapwingError, format_seconds

from ._laps import Laps
from ._summary import LapSummary

CHUNK = 1 << 16


class CommandStartError(LapwingError, ValueError):
    """The command could not be started."""


@dataclass(frozen=True, slots=True)
class CommandTiming:
    """A finished command: its exit status as in a shell, wall and processor seconds, and its laps."""

    argv: tuple[str, ...]
    status: int
    wall: float
    cpu: float
    laps: Laps = field(repr=False)
    summary: LapSummary = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        return {
            "argv": list(self.argv),
            "status": self.status,
            "wall": self.wall,
            "cpu": self.cpu,
            "laps": self.summary.to_json(),
        }

    @property
    def has_laps(self) -> bool:
        return self.summary.step.count + self.summary.apart > 0

    def remark(self) -> str:
        """The sentence below the table.

        >>> print(time_command([sys.executable, "-c", ""]).remark())
        `... -c ''` ended with status 0 after ...s (processor time ...s); it printed no line to lap.
        """
        rest = max(0.0, self.wall - self.summary.apart_seconds - self.summary.step.total)
        laps = (
            f", {format_seconds(rest)} of it after the last lap"
            if self.has_laps
            else "; it printed no line to lap"
        )
        return (
            f"`{shlex.join(self.argv)}` ended with status {self.status} after {format_seconds(self.wall)} "
            f"(processor time {format_seconds(self.cpu)}){laps}."
        )

    def __str__(self) -> str:
        return f"{self.summary}\n{self.remark()}" if self.has_laps else self.remark()


def time_command(argv: list[str], marker: str | None = None) -> CommandTiming:
    """Runs a command, passes its output through and times its lines (those that contain `marker`, if given).

    Ctrl-C and SIGTERM are passed to the command; the laps so far are kept.

    >>> timing = time_command([sys.executable, "-c", "print('a'); print('b'); print('c')"])
    a
    b
    c
    >>> timing.status, timing.summary.step.count   # the first line includes the start-up and is excluded
    (0, 2)
    """
    cpu_before = _children_cpu()
    laps = Laps()
    begin = time.perf_counter()
    laps.step()
    process = _start(argv)
    with process, _signals_reach(process):
        assert process.stdout is not None
        _pass_through(process.stdout, _LineLaps(laps, marker))
        status = process.wait()
    return CommandTiming(
        argv=tuple(argv),
        status=status if status >= 0 else 128 - status,
        wall=time.perf_counter() - begin,
        cpu=_children_cpu() - cpu_before,
        laps=laps,
        summary=laps.summary(),
    )


def _children_cpu() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _start(argv: list[str]) -> subprocess.Popen[bytes]:
    if not argv:
        raise CommandStartError(
            "expected a command to time, found none; write: lapwing time -- python train.py"
        )
    environment = {"PYTHONUNBUFFERED": "1", **os.environ}
    try:
        return subprocess.Popen(argv, stdout=subprocess.PIPE, bufsize=0, env=environment)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CommandStartError(
            f"expected a command that can be started, found {argv[0]!r} ({reason}); "
            "check the spelling, or write its path, and each argument as a word of its own"
        ) from None


class _LineLaps:
    """Closes a step at the end of each matching line, from chunks of output of any size."""

    def __init__(self, laps: Laps, marker: str | None) -> None:
        self._laps = laps
        self._marker = os.fsencode(marker or "")
        # Only as much of the line as can be the beginning of a marker, since a line may be endless.
        self._tail = b""
        self._found = False
        self._line_open = False

    def feed(self, chunk: bytes) -> None:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            self._search(piece)
            self.end_line()
        if rest:
            self._search(rest)
            self._line_open = True

    def end_line(self) -> None:
        if self._found:
            self._laps.step()
        self._tail, self._found, self._line_open = b"", False, False

    def end_output(self) -> None:
        if self._line_open:
            self.end_line()

    def _search(self, piece: bytes) -> None:
        text = self._tail + piece
        self._found = self._found or self._marker in text
        self._tail = text[max(0, len(text) - len(self._marker) + 1) :] if self._marker else b""


def _pass_through(pipe: IO[bytes], lines: _LineLaps) -> None:
    write = _writer()
    while chunk := pipe.read(CHUNK):
        try:
            write(chunk)
        except BrokenPipeError:
            # Our reader has exited (`lapwing time -- ... | head`): closing the pipe tells the command the same.
            # Python would raise again when it flushes standard output at the end of the process.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            pipe.close()
            return
        lines.feed(chunk)
    lines.end_output()


def _writer() -> Callable[[bytes], None]:
    binary: IO[bytes] | None = getattr(sys.stdout, "buffer", None)
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def write(chunk: bytes) -> None:
        if binary is not None:
            binary.write(chunk)
        else:
            sys.stdout.write(decode(chunk))  # a notebook has a standard output for text only
        sys.stdout.flush()

    sys.stdout.flush()
    return write


@contextmanager
def _signals_reach(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Passes SIGINT and SIGTERM to the command, so that it ends and its laps are still shown."""

    def forward(number: int, _frame: object) -> None:
        if number != signal.SIGINT or not _sent_by_terminal():
            process.send_signal(number)

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _sent_by_terminal() -> bool:
    """Whether a terminal sent Ctrl-C to its whole foreground group: the command must not get it twice."""
    try:
        with open(os.ctermid(), "rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
