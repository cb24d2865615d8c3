"""Metrics as event files for TensorBoard.

tensorboardX writes them; it is small and needs no TensorFlow. An event takes some 40 µs to write, more than a small
step takes to compute, and TensorBoard shows a thousand points of a curve. So a long run writes fewer of its steps: the
first 2048 values of a metric, then every second one, after as many more every fourth, and so on.

When a run is rolled back, a session log that starts at that step tells TensorBoard to drop what was undone.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lapwing.core import LapwingError

_ALL_OF_THE_FIRST = 2048
# A flush waits milliseconds for the disk; a killed run loses what came after the last one.
_FLUSH_EVERY_S = 2.0


class TensorBoardError(LapwingError, ImportError):
    """tensorboardX is not installed."""


@dataclass
class _Tag:
    """What was written of a metric."""

    last_step: int = -1
    kept: int = 0
    stride: int = 1

    def keep(self, steps: np.ndarray) -> np.ndarray:
        """The indices of the steps to write."""
        self.last_step = int(steps[-1])
        places = np.flatnonzero(steps % self.stride == 0)
        self.kept += len(places)
        if self.kept >= _ALL_OF_THE_FIRST:
            self.kept, self.stride = 0, 2 * self.stride
        return places


class TensorBoard:
    """Event files in a folder, one for each start or resumption of a run.

    >>> import tempfile
    >>> board = TensorBoard(Path(tempfile.mkdtemp()))
    >>> board.add(range(3), {"loss": np.array([1.0, 0.5, 0.25])})
    >>> board.close()
    """

    def __init__(self, folder: Path):
        try:
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto import event_pb2, summary_pb2
        except ImportError as error:
            raise TensorBoardError(
                "writing event files for TensorBoard needs the package tensorboardX, which is not installed; "
                "pip install 'lapwing[tensorboard]'"
            ) from error
        folder.mkdir(parents=True, exist_ok=True)
        self._events, self._summaries = event_pb2, summary_pb2
        # tensorboardX puts only the second into the name; two files of one second must differ and keep their order.
        self._file = EventsWriter(str(folder / "events"), f".{time.time_ns()}")
        self._tags: dict[str, _Tag] = {}
        self._flush_at = 0.0

    def add(self, steps: Sequence[int], columns: Mapping[str, np.ndarray]) -> None:
        """Writes the metrics of steps in ascending order, one value per step."""
        at = np.asarray(steps)
        if not len(at):
            return
        known = [self._tags[name].last_step for name in columns if name in self._tags]
        if not self._tags or at[0] <= max(known, default=-1):
            self._start_at(int(at[0]))
        values: dict[int, list[Any]] = {}
        for name, column in columns.items():
            numbers = np.asarray(column, np.float32).tolist()
            for place in self._tags.setdefault(name, _Tag()).keep(at).tolist():
                value = self._summaries.Summary.Value(tag=name, simple_value=numbers[place])
                values.setdefault(place, []).append(value)
        now = time.time()
        for place in sorted(values):
            summary = self._summaries.Summary(value=values[place])
            self._file.write_event(self._events.Event(step=int(at[place]), wall_time=now, summary=summary))
        if time.monotonic() >= self._flush_at:
            self._file.flush()
            self._flush_at = time.monotonic() + _FLUSH_EVERY_S

    def close(self) -> None:
        self._file.close()

    def _start_at(self, step: int) -> None:
        """Tells readers to forget this step and those after it."""
        for tag in self._tags.values():
            tag.last_step = min(tag.last_step, step - 1)
        started = self._events.SessionLog(status=self._events.SessionLog.START)
        self._file.write_event(self._events.Event(step=step, wall_time=time.time(), session_log=started))
