"""Metrics from the device to the host, without making the device wait.

The metrics of a call are still being computed when the call returns. They are kept here until a window of steps ends,
or half a second has passed, and are then fetched together. The host never gets more than a few calls ahead: that would
use memory, and an interrupt would have to wait for them.
"""

import time
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ._step import Packed

_CALLS_AHEAD = 2
_AT_LEAST_EVERY_S = 0.5


class Rows(NamedTuple):
    """The metrics of consecutive steps, one value per step each."""

    steps: range
    columns: Mapping[str, np.ndarray]

    def split(self, step: int) -> tuple["Rows", "Rows"]:
        """The rows before `step`, and the others.

        >>> early, late = Rows(range(5, 8), {"loss": np.array([3.0, 2.0, 1.0])}).split(6)
        >>> early.steps, late.columns["loss"].tolist()
        (range(5, 6), [2.0, 1.0])
        """
        cut = min(max(step - self.steps.start, 0), len(self.steps))
        first = {name: column[:cut] for name, column in self.columns.items()}
        rest = {name: column[cut:] for name, column in self.columns.items()}
        return Rows(self.steps[:cut], first), Rows(self.steps[cut:], rest)


class Transfer:
    """The calls whose metrics are on their way to the host."""

    def __init__(self) -> None:
        self._calls: deque[tuple[range, Packed]] = deque()
        self._last_fetched = time.monotonic()

    def add(self, steps: range, metrics: Packed) -> None:
        """Takes the metrics of a call; their copy starts as soon as they are computed."""
        metrics.numbers.copy_to_host_async()
        self._calls.append((steps, metrics))

    def wait(self) -> None:
        """Waits until the device is at most a few calls behind."""
        if len(self._calls) > _CALLS_AHEAD:
            self._calls[-1 - _CALLS_AHEAD][1].numbers.block_until_ready()

    def is_late(self) -> bool:
        """Whether the last fetch is some time ago and there is something that need not be waited for."""
        return len(self._calls) > 1 and time.monotonic() - self._last_fetched > _AT_LEAST_EVERY_S

    def fetch(self, *, leave: int = 0) -> Rows | None:
        """The metrics of all calls but the last `leave`, after waiting for them; None if there are none."""
        self._last_fetched = time.monotonic()
        calls = [self._calls.popleft() for _ in range(len(self._calls) - leave)]
        if not calls:
            return None
        table = np.concatenate([np.asarray(metrics.numbers) for _, metrics in calls]).T
        columns = dict(zip(calls[0][1].names, np.ascontiguousarray(table), strict=True))
        return Rows(range(calls[0][0].start, calls[-1][0].stop), columns)

    def clear(self) -> None:
        self._calls.clear()
