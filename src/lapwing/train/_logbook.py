"""Metrics from the device to the run folder, without making the device wait.

A call's metrics are still being computed when the call returns. They are kept here until enough have come
together, and are then fetched all but the newest, so that the device has work while the host writes. The host
never gets more than a few calls ahead: it would use memory, and an interrupt would have to wait for them.
"""

import math
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from lapwing.journal import RunWriter

from ._task import Metrics

_CALLS_AHEAD = 2
_AT_LEAST_EVERY_S = 0.5


class _Entry(NamedTuple):
    steps: range
    metrics: Metrics  # Each an array with a value for each step, perhaps not yet computed.


class Logbook:
    """Takes the metrics of each call, and writes those of every step."""

    def __init__(self, run: RunWriter | None, log_every: int):
        self._run = run
        self._log_every = log_every
        self._waiting: deque[_Entry] = deque()
        self._rows_waiting = 0
        self._kept: dict[str, list[np.ndarray]] = {}
        self._last_written = time.monotonic()
        self.latest: dict[str, float] = {}
        self.first_loss = math.nan
        self.best_loss = math.inf
        self.not_finite_at: int | None = None
        self.evaluation: dict[str, float] = {}
        self.evaluated_at: int | None = None

    def add(self, first_step: int, count: int, metrics: Metrics) -> bool:
        """Takes the metrics of a call; True if some were written, so that there is news to show."""
        self._waiting.append(_Entry(range(first_step, first_step + count), metrics))
        self._rows_waiting += count
        if len(self._waiting) > _CALLS_AHEAD:
            jax.block_until_ready(self._waiting[-1 - _CALLS_AHEAD].metrics)
        older = self._rows_waiting - count
        late = time.monotonic() - self._last_written > _AT_LEAST_EVERY_S
        if older >= self._log_every or (older and late):
            self._write(len(self._waiting) - 1)
            return True
        return False

    def add_evaluation(self, step: int, metrics: Metrics) -> None:
        """Writes an evaluation after `step` updates, under names of their own: `eval_` and the name."""
        self.finish()
        self.evaluation = {f"eval_{name}": float(value) for name, value in metrics.items()}
        self.evaluated_at = step
        if self._run:
            self._run.log({"step": step, **self.evaluation})

    def finish(self) -> None:
        """Waits for all that is being computed, and writes it."""
        self._write(len(self._waiting))

    def history(self) -> dict[str, np.ndarray]:
        """All metrics of all steps."""
        return {name: np.concatenate(parts) for name, parts in self._kept.items()}

    def account(self) -> str:
        """What became of the loss, in half a sentence."""
        if not self._kept:
            return ""
        told = f": loss {self.first_loss:.4g} → {self.latest['loss']:.4g} (best {self.best_loss:.4g})"
        return told + "".join(f", {name} {value:.4g}" for name, value in self.evaluation.items())

    def _write(self, calls: int) -> None:
        if not calls:
            return
        entries = [self._waiting.popleft() for _ in range(calls)]
        first, last = entries[0].steps[0], entries[-1].steps[-1]
        self._rows_waiting -= last + 1 - first
        columns = {
            name: np.concatenate([np.asarray(entry.metrics[name]) for entry in entries])
            for name in entries[0].metrics
        }
        for name, values in columns.items():
            self._kept.setdefault(name, []).append(values)
        self._look_at(first, columns["loss"])
        self.latest = {name: float(values[-1]) for name, values in columns.items()}
        if self._run:
            self._run.log(*_rows(range(first, last + 1), columns))
        self._last_written = time.monotonic()

    def _look_at(self, first_step: int, losses: np.ndarray) -> None:
        if first_step == 0:
            self.first_loss = float(losses[0])
        finite = np.isfinite(losses)
        self.best_loss = min(self.best_loss, float(losses.min(where=finite, initial=math.inf)))
        if self.not_finite_at is None and not finite.all():
            self.not_finite_at = first_step + int(finite.argmin())


def _rows(steps: range, columns: dict[str, np.ndarray]) -> Iterator[dict[str, float]]:
    names = ["step", *columns]
    for values in zip(steps, *(column.tolist() for column in columns.values()), strict=True):
        yield dict(zip(names, values, strict=True))
