"""The Chrome trace of a run: a JSON file for Perfetto (ui.perfetto.dev) and chrome://tracing.

Every lap is a complete event (`"ph": "X"`) with its start and its duration in microseconds; viewers nest events of one
thread by their times. So times are rounded to whole nanoseconds *before* durations are computed: otherwise a child
could exceed its parent by a digit, and viewers would not nest it.

Memory is bounded by keeping the first and the last events: the first contain tracing and compilation, the last show the
steady state. The file says how many events between them were left out.
"""

import json
import os
from collections import deque
from pathlib import Path
from typing import Any

# (path, start, end, step) in seconds of the clock; a bare tuple, because one is made for every lap.
Event = tuple[str, float, float, int]


class Events:
    """The first and the last events of a stream, half of `room` each."""

    __slots__ = ("_first", "_half", "_last", "_seen")

    def __init__(self, room: int) -> None:
        self._half = room // 2
        self._first: list[Event] = []
        self._last: deque[Event] = deque(maxlen=room - self._half)
        self._seen = 0

    def add(self, event: Event) -> None:
        self._seen += 1
        if self._seen <= self._half:
            self._first.append(event)
        else:
            self._last.append(event)

    def kept(self) -> list[Event]:
        return [*self._first, *self._last]

    def left_out(self) -> int:
        return self._seen - len(self._first) - len(self._last)


def write_trace(events: Events, path: str | os.PathLike[str]) -> None:
    trace = {
        "displayTimeUnit": "ms",
        "otherData": {"events_left_out": events.left_out()},
        "traceEvents": _trace_events(events.kept()),
    }
    Path(path).write_text(json.dumps(trace), encoding="utf-8")


def _trace_events(events: list[Event]) -> list[dict[str, Any]]:
    lane = {"pid": os.getpid(), "tid": 1}
    named = [
        {"ph": "M", "name": "process_name", "args": {"name": "Lapwing"}, **lane},
        {"ph": "M", "name": "thread_name", "args": {"name": "steps and their phases"}, **lane},
    ]
    origin = min((start for _, start, _, _ in events), default=0.0)
    return named + [_complete(event, origin, lane) for event in events]


def _complete(event: Event, origin: float, lane: dict[str, int]) -> dict[str, Any]:
    path, start, end, step = event
    begin = round((start - origin) * 1e9)
    length = round((end - origin) * 1e9) - begin
    return {
        "ph": "X",
        "name": path.rpartition("/")[2],
        "ts": begin / 1000,
        "dur": length / 1000,
        "args": {"path": path, "step": step},
        **lane,
    }
