"""Metrics from the device to the run folder, without making the device wait.

A call's metrics are still being computed when the call returns. They are kept here until a window of steps is over,
or half a second, and are then fetched; what was fetched is written only after the next call has been given to the
device, which then has work while the host writes. The host never gets more than a few calls ahead: it would use
memory, and an interrupt would have to wait for them.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import numpy as np

from lapwing.journal import RunWriter
from lapwing.task import Metrics

from ._config import FitConfig
from ._processes import told
from ._step import SKIPPED, Packed

_CALLS_AHEAD = 2
_AT_LEAST_EVERY_S = 0.5
_ROWS_AT_ONCE = 256  # In less than a millisecond, so that the device has not finished its call meanwhile.
_Columns = Mapping[str, np.ndarray]


class Sink(Protocol):
    """Another place for the metrics, such as TensorBoard."""

    def add(self, steps: range, columns: _Columns) -> None: ...
    def close(self) -> None: ...


def sink_of(run: RunWriter | None, config: FitConfig) -> Sink | None:
    """The other place that the config asks for."""
    if run is None or not config.tensorboard:
        return None
    from ._tensorboard import TensorBoard

    return TensorBoard(run.folder / "tensorboard")


class _Entry(NamedTuple):
    steps: range
    metrics: Packed  # Perhaps not yet computed.


class Logbook:
    """Takes the metrics of each call, shows them to `see(first step, columns)`, and writes those of every step.

    `see` gets each step once, in order, together with the column `skipped`; it says when the numbers end there,
    by the number of rows that count. What it shows `by_time` comes at another step each time the run is made; several
    processes, which must see the same, see it where they fetch it only.
    """

    def __init__(
        self,
        run: RunWriter | None,
        see: Callable[[int, _Columns], int],
        sink: Sink | None = None,
        *,
        by_time: bool = True,
    ):
        self._run = run
        self._see = see
        self._sink = sink
        self._by_time = by_time
        self._waiting: deque[_Entry] = deque()
        self._unwritten: deque[tuple[range, _Columns]] = deque()
        self._kept: list[tuple[range, _Columns]] = []
        self._last_fetched = time.monotonic()
        self.latest: dict[str, float] = {}
        self.evaluation: dict[str, float] = {}
        self.evaluated_at: int | None = None

    def add(self, first_step: int, count: int, metrics: Packed) -> None:
        """Takes the metrics of a call; they begin their way to the host as soon as they are computed."""
        metrics.numbers.copy_to_host_async()
        self._waiting.append(_Entry(range(first_step, first_step + count), metrics))
        self.write(_ROWS_AT_ONCE)
        if len(self._waiting) > _CALLS_AHEAD:
            self._waiting[-1 - _CALLS_AHEAD].metrics.numbers.block_until_ready()
        late = time.monotonic() - self._last_fetched > _AT_LEAST_EVERY_S
        if self._by_time and late and len(self._waiting) > 1:
            self._fetch(len(self._waiting) - 1)

    def fetch(self) -> None:
        """Waits for all that is being computed."""
        self._fetch(len(self._waiting))

    def write(self, most: float = math.inf) -> None:
        """Writes what was fetched, or as many rows of it."""
        while self._unwritten and most > 0:
            steps, columns = self._unwritten.popleft()
            if len(steps) > most:
                end = steps.start + int(most)
                self._unwritten.appendleft(_after(end, steps, columns))
                steps, columns = _before(end, steps, columns)
            most -= len(steps)
            if self._run:
                self._run.log_columns({"step": steps, **columns})
            if self._sink:
                self._sink.add(steps, columns)

    def add_evaluation(self, step: int, metrics: Metrics) -> None:
        """Writes an evaluation after `step` updates, under names of their own: `eval_` and the name."""
        self.fetch()
        self.write()
        # Two hosts may round differently; they must not decide differently.
        self.evaluation = told({f"eval_{name}": float(value) for name, value in metrics.items()})
        self.evaluated_at = step
        if self._run and self.evaluation:
            self._run.log({"step": step, **self.evaluation})
        if self._sink:
            self._sink.add(range(step, step + 1), {k: np.asarray([v]) for k, v in self.evaluation.items()})

    def go_back(self, step: int) -> None:
        """Forgets the steps from this one on, which were undone."""
        self._waiting.clear()
        self.write()
        self.evaluated_at = None
        self._kept = [part for steps, columns in self._kept if (part := _before(step, steps, columns))[0]]
        if self._run:
            self._run.back_to(step)

    def recall(self, step: int) -> None:
        """Takes what the run folder holds of the steps before this one, in a run that was resumed."""
        if self._run is None:
            return
        self._run.back_to(step)
        columns = {name: np.asarray(column) for name, column in self._run.columns().items()}
        trained = ~np.isnan(columns.get("learning_rate", np.zeros(0)))
        names = [name for name in columns if name not in ("step", "time") and not name.startswith("eval_")]
        if np.count_nonzero(trained) == step:
            kept = {name: columns[name][trained].astype(np.float32) for name in names}
            self._kept = [(range(step), {name: kept[name] for name in names})]
            self.latest = {name: float(column[-1]) for name, column in kept.items() if step}

    def history(self) -> dict[str, np.ndarray]:
        """All metrics of all steps."""
        names = self._kept[-1][1] if self._kept else {}
        return {name: np.concatenate([_column(name, *part) for part in self._kept]) for name in names}

    def close(self) -> None:
        if self._sink:
            self._sink.close()

    def _fetch(self, calls: int) -> None:
        self._last_fetched = time.monotonic()
        if not calls:
            return
        entries = [self._waiting.popleft() for _ in range(calls)]
        first, last = entries[0].steps[0], entries[-1].steps[-1]
        table = np.concatenate([np.asarray(entry.metrics.numbers) for entry in entries]).T
        columns = dict(zip(entries[0].metrics.names, np.ascontiguousarray(table), strict=True))
        count = self._see(first, columns)
        if not count:
            return
        steps = range(first, min(last + 1, first + count))
        skipped = columns.pop(SKIPPED)
        if skipped.any():
            columns[SKIPPED] = skipped.astype(np.int32)
        columns = {name: column[: len(steps)] for name, column in columns.items()}
        self.latest = {name: float(values[-1]) for name, values in columns.items()}
        self._kept.append((steps, columns))
        self._unwritten.append((steps, columns))


def _before(step: int, steps: range, columns: _Columns) -> tuple[range, _Columns]:
    kept = range(steps.start, max(steps.start, min(steps.stop, step)))
    return kept, {name: column[: len(kept)] for name, column in columns.items()}


def _after(step: int, steps: range, columns: _Columns) -> tuple[range, _Columns]:
    cut = step - steps.start
    return steps[cut:], {name: column[cut:] for name, column in columns.items()}


def _column(name: str, steps: range, columns: _Columns) -> np.ndarray:
    return columns[name] if name in columns else np.full(len(steps), math.nan, np.float32)
