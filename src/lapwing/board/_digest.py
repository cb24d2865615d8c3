"""The numbers of one run, read on and on, and kept in little memory: a bounded curve for each metric.

`read_on` reads one block of what is new in metrics.jsonl, so a reader of many runs can take turns. Where a run went
back to an earlier step, what was logged from that step on is no part of it any more. A bucket of a curve cannot forget
some of its rows, so it must not see them: the places at which the file goes back are looked for first (to search a file
for a word is much faster than to read it), and when a new one appears the reading begins again.
"""

import json
import math
import mmap
import os
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np

from lapwing.journal import BACK_TO, Run

from ._series import Series

MOST_METRICS = 200
_MOMENTS = 64
"""So many of the last writes tell how fast a run is now."""

_LITTLE = 1 << 20
"""So many bytes are read in no time."""

Record = dict[str, Any]


class Digest:
    """What is known of a run's metrics. Everything is behind `lock`, for one thread reads and others look.

    >>> import tempfile
    >>> with Run.create("demo", runs_dir=tempfile.mkdtemp()) as run:
    ...     run.log(*({"step": step, "loss": (step - 3) ** 2, "time": step / 10} for step in range(6)))
    >>> digest = Digest(run)
    >>> digest.read_on(), digest.read_on()
    (True, False)
    >>> digest.best, digest.best_step, digest.latest["step"], round(digest.speed, 6)
    (0.0, 3, 5, 10.0)
    """

    def __init__(self, run: Run):
        self.lock = threading.Lock()
        self.version = 0
        """Raised with all that is read."""
        self._run = run
        self._keeps_curves = True
        self._begin()

    def _begin(self) -> None:
        self.series: dict[str, Series] = {}
        self.latest: Record = {}
        self.best: float | None = None
        self.best_step: int | None = None
        self.reading = 0
        """Raised when the reading begins again: curves of an earlier one are not continued."""
        self._moments: deque[tuple[float, float]] = deque(maxlen=_MOMENTS)
        self._tail = self._run.follow("metrics")
        self._returns: list[float] | None = None
        """The steps to which the run went back, once they were looked for."""
        self._passed = 0

    @property
    def part_read(self) -> float:
        """How much of the file has been read, from 0 to 1. The last lines of a run that grows do not count."""
        size = _size(self._tail.path)
        return 1.0 if size - self._tail.position < _LITTLE else self._tail.position / size

    def numbers(self) -> tuple[Record, float | None, int | None]:
        """The newest value of each metric, and the best loss with its step."""
        with self.lock:
            return dict(self.latest), self.best, self.best_step

    @property
    def nbytes(self) -> int:
        return sum(series.nbytes for series in self.series.values())

    @property
    def speed(self) -> float | None:
        """Steps a second over the last writes: the median, so that a pause does not count."""
        with self.lock:
            moments = list(self._moments)
        times, steps = np.array(moments).reshape(-1, 2).T
        took, moved = np.diff(times), np.diff(steps)
        speeds = moved[(took > 0) & (moved > 0)] / took[(took > 0) & (moved > 0)]
        return float(np.median(speeds)) if len(speeds) else None

    def read_on(self) -> bool:
        """Reads a block of what is new; False if nothing is."""
        with self.lock:
            if _size(self._tail.path) == self._tail.position:
                return False
            if self._returns is None:
                self._returns = _returns(self._tail.path)
            batch = next(self._tail.batches(), None)
            if not batch:
                return False
            for stretch, goes_back in _stretches(batch):
                self._take(stretch, before=min(self._returns[self._passed :], default=math.inf))
                self._passed += goes_back
            if self._passed > len(self._returns):
                self._begin_again()
            self.version += 1
            return True

    def forget_curves(self) -> None:
        """Gives the memory back; the few numbers of a table are still followed."""
        with self.lock:
            self._keeps_curves = False
            self.series = {}
            self.version += 1

    def want_curves(self) -> None:
        """Reads the run again if its curves were forgotten."""
        with self.lock:
            if not self._keeps_curves:
                self._keeps_curves = True
                self._begin_again()

    def _begin_again(self) -> None:
        before = self.reading
        self._begin()
        self.reading = before + 1

    def _take(self, records: Sequence[Record], before: float) -> None:
        """Rows between two returns. Those count whose step comes before all to which the run goes back later."""
        steps = _column(records, "step")
        counts = np.isfinite(steps) & (steps < before)
        if not counts.all():
            records, steps = list(compress(records, counts)), steps[counts]
        if not records:
            return
        times = _column(records, "time")
        for name in _names(records):
            values = _column(records, name)
            there = np.ones(len(values), bool)
            if np.isnan(values).any():
                there = np.array([name in record for record in records])
            self._add(name, steps[there], times[there], values[there])
        self.latest["step"] = int(steps[-1])
        ends = np.flatnonzero(np.append(np.diff(times) > 0, True))[-_MOMENTS:]
        self._moments.extend(zip(times[ends].tolist(), steps[ends].tolist(), strict=True))

    def _add(self, name: str, steps: np.ndarray, times: np.ndarray, values: np.ndarray) -> None:
        self.latest[name] = float(values[-1])
        if name == "loss":
            self._see_best(steps, values)
        if self._keeps_curves and (name in self.series or len(self.series) < MOST_METRICS):
            self.series.setdefault(name, Series()).add(steps, times - self._run.created, values)

    def _see_best(self, steps: np.ndarray, losses: np.ndarray) -> None:
        finite = np.where(np.isfinite(losses), losses, np.inf)
        at = int(finite.argmin())
        if finite[at] < (math.inf if self.best is None else self.best):
            self.best, self.best_step = float(finite[at]), int(steps[at])


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _returns(path: Path) -> list[float]:
    """The steps to which a run went back, in the order in which it did."""
    word = f'"{BACK_TO}"'.encode()
    found = []
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            at = content.find(word)
            while at >= 0:
                file.seek(content.rfind(b"\n", 0, at) + 1)
                found += _return_of(file.readline())
                at = content.find(word, file.tell())
    except (OSError, ValueError):  # There is no file yet, or nothing is in it.
        pass
    return found


def _return_of(line: bytes) -> list[float]:
    """The step of a line that says that the run went back; none if it is another line, or damaged."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return []
    if not isinstance(record, dict) or BACK_TO not in record:
        return []
    step = _number(record[BACK_TO])
    return [math.inf if math.isnan(step) else step]


def _stretches(batch: list[Record]) -> Iterable[tuple[list[Record], bool]]:
    """The batch in parts, each with whether the run went back after it."""
    start = 0
    for place in [place for place, record in enumerate(batch) if BACK_TO in record]:
        yield batch[start:place], True
        start = place + 1
    yield batch[start:], False


def _names(records: Sequence[Record]) -> list[str]:
    return [name for name in dict.fromkeys(chain.from_iterable(records)) if name not in ("step", "time")]


def _column(records: Sequence[Record], name: str) -> np.ndarray:
    """NaN where there is nothing, or nothing that is a number."""
    values = [record.get(name) for record in records]
    try:
        column = np.array(
            values, dtype=np.float64
        )  # "NaN" and "Infinity", as the journal writes them, are numbers.
        if column.ndim == 1:
            return column
    except (TypeError, ValueError, OverflowError):
        pass
    return np.array([_number(value) for value in values])


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
