"""The result of reading the metrics of a run: a bounded curve for each metric, and some numbers for a table."""

import math
from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from lapwing.report import median_speed

from ._series import Series

MOST_METRICS = 200
_MOMENTS = 64
"""The speed of a run is computed from this many of the last writes."""

Record = dict[str, Any]


class Found:
    """The metrics of a run, added row by row. `created` is the time from which seconds are counted.

    >>> found = Found(created=0.0)
    >>> found.take([{"step": step, "loss": (step - 3) ** 2, "time": step / 10} for step in range(6)])
    >>> found.best, found.best_step, found.latest["step"], round(found.speed, 6)
    (0.0, 3, 5, 10.0)
    >>> found.numbers
    {'loss': [4.0, 0.0, 9.0]}
    """

    def __init__(self, created: float, keeps_curves: bool = True):
        self.series: dict[str, Series] = {}
        self.latest: Record = {}
        self.numbers: dict[str, list[float | None]] = {}
        """Of each metric the latest value, the lowest and the highest; None for what is not finite."""
        self.best: float | None = None
        self.best_step: int | None = None
        self._created = created
        self._keeps_curves = keeps_curves
        self._moments: deque[tuple[float, float]] = deque(maxlen=_MOMENTS)

    @property
    def nbytes(self) -> int:
        return sum(series.nbytes for series in self.series.values())

    @property
    def speed(self) -> float | None:
        """Steps per second, over the last writes."""
        times, steps = np.array(self._moments).reshape(-1, 2).T
        return median_speed(steps, times)

    def forget_curves(self) -> None:
        self.series, self._keeps_curves = {}, False

    def take(self, records: Sequence[Record], before: float = math.inf) -> None:
        """Adds rows, later than all so far; those with a step of `before` or later are ignored."""
        steps = column(records, "step")
        counts = np.isfinite(steps) & (steps < before)
        if not counts.all():
            records = [record for record, does in zip(records, counts, strict=True) if does]
            steps = steps[counts]
        if not records:
            return
        times = column(records, "time")
        for name in dict.fromkeys(chain.from_iterable(records)):
            if name not in ("step", "time"):
                values = column(records, name)
                there = np.ones(len(values), bool)
                if np.isnan(values).any():
                    there = np.array([name in record for record in records])
                self._add(name, steps[there], times[there], values[there])
        self.latest["step"] = int(steps[-1])
        ends = np.flatnonzero(np.append(np.diff(times) > 0, True))[-_MOMENTS:]
        self._moments.extend(zip(times[ends].tolist(), steps[ends].tolist(), strict=True))

    def _add(self, name: str, steps: np.ndarray, times: np.ndarray, values: np.ndarray) -> None:
        self.latest[name] = float(values[-1])
        self._see_numbers(name, values)
        if name == "loss":
            self._see_best(steps, values)
        if self._keeps_curves and (name in self.series or len(self.series) < MOST_METRICS):
            self.series.setdefault(name, Series()).add(steps, times - self._created, values)

    def _see_numbers(self, name: str, values: np.ndarray) -> None:
        if name not in self.numbers and len(self.numbers) >= MOST_METRICS:
            return
        _, low, high = self.numbers.get(name, (None, None, None))
        finite = values[np.isfinite(values)]
        if len(finite):
            low = min(float(finite.min()), math.inf if low is None else low)
            high = max(float(finite.max()), -math.inf if high is None else high)
        last = float(values[-1])
        self.numbers[name] = [last if math.isfinite(last) else None, low, high]

    def _see_best(self, steps: np.ndarray, losses: np.ndarray) -> None:
        finite = np.where(np.isfinite(losses), losses, np.inf)
        at = int(finite.argmin())
        if finite[at] < (math.inf if self.best is None else self.best):
            self.best, self.best_step = float(finite[at]), int(steps[at])


def column(records: Sequence[Record], name: str) -> np.ndarray:
    """A column of records, with NaN where a record has no number.

    >>> column([{"loss": 1}, {}, {"loss": "Infinity"}, {"loss": [2]}], "loss").tolist()
    [1.0, nan, inf, nan]
    """
    values = [record.get(name) for record in records]
    try:
        array = np.array(values, dtype=np.float64)  # "NaN" and "Infinity" are converted too.
        if array.ndim == 1:
            return array
    except (TypeError, ValueError, OverflowError):
        pass
    return np.array([number(value) for value in values])


def number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
