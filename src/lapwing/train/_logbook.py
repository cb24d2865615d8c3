"""The metrics of a run on the host: in memory, in the run folder, and for TensorBoard.

A thread writes them, after the next calls have been given to the device: on a GPU, the thread of the loop is busy with
giving it more. Python runs one thread at a time, so this one writes a few rows and lets the other continue.
"""

import contextlib
import math
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from lapwing.journal import JournalError, RunWriter

from ._config import FitConfig
from ._optimizer import effective
from ._step import SKIPPED
from ._tensorboard import TensorBoard
from ._transfer import Rows

_ROWS_AT_ONCE = 64
_MOST_WRITES = 16


class Logbook:
    """Keeps the metrics of every step that was not undone, and writes them."""

    def __init__(self, run: RunWriter | None, config: FitConfig):
        self._run = run
        self._board = TensorBoard(run.folder / "tensorboard") if run and config.tensorboard else None
        self._thread = ThreadPoolExecutor(1, "lapwing metrics")
        self._unwritten: list[Rows] = []
        self._writes: deque[Future[None]] = deque()
        self._kept: list[Rows] = []
        self.latest: Mapping[str, float] = {}
        self.evaluation: Mapping[str, float] = {}
        self.evaluated_at: int | None = None

    def add(self, rows: Rows) -> None:
        """Takes the metrics of the next steps. The column of skipped updates is kept where there are some."""
        skipped = rows.columns[SKIPPED]
        columns = {name: column for name, column in rows.columns.items() if name != SKIPPED}
        if skipped.any():
            columns[SKIPPED] = skipped.astype(np.int32)
        self.latest = {name: float(values[-1]) for name, values in columns.items()}
        self._kept.append(Rows(rows.steps, columns))
        self._unwritten.append(self._kept[-1])

    def start_writing(self) -> None:
        """Lets the thread write what it does not know of yet; raises if an earlier write failed."""
        for rows in self._unwritten:
            self._writes.append(self._thread.submit(self._write, rows))
        self._unwritten = []
        while self._writes and (self._writes[0].done() or len(self._writes) > _MOST_WRITES):
            self._writes.popleft().result()

    def write(self) -> None:
        """Returns when all rows are written; raises if that failed."""
        self.start_writing()
        while self._writes:
            self._writes.popleft().result()

    def _write(self, rows: Rows) -> None:
        while rows.steps:
            part, rows = rows.split(rows.steps.start + _ROWS_AT_ONCE)
            if self._run:
                self._run.log_columns({"step": part.steps, **part.columns})
            if self._board:
                self._board.add(*part)

    def add_evaluation(self, step: int, evaluation: Mapping[str, float]) -> None:
        """Takes and writes an evaluation after `step` updates."""
        self.write()
        self.evaluation, self.evaluated_at = evaluation, step
        if self._run and evaluation:
            self._run.log_columns({name: [value] for name, value in {"step": step, **evaluation}.items()})
        if self._board:
            self._board.add(range(step, step + 1), {k: np.asarray([v]) for k, v in evaluation.items()})

    def roll_back(self, step: int) -> None:
        """Forgets the steps from this one on, which are undone."""
        self.write()
        self.evaluated_at = None
        self._kept = [kept for rows in self._kept if (kept := rows.split(step)[0]).steps]
        if self._run:
            self._run.back_to(step)

    def restore(self, step: int) -> list[range]:
        """Reads the metrics of the steps before this one from the folder of a run that is resumed.

        **Returns** the steps that are missing there, after a power failure or an accident.
        """
        if self._run is None:
            return []
        self._run.back_to(step)
        columns = {name: np.asarray(column) for name, column in self._run.columns().items()}
        rate = effective("learning_rate")
        if "learning_rate" in columns:  # An older version wrote the effective one under this name.
            older = columns.pop("learning_rate")
            columns[rate] = (
                np.where(np.isnan(columns[rate]), older, columns[rate]) if rate in columns else older
            )
        # Rows of evaluations and of callbacks have none of these. A gradient may be nan, but not the rate with it.
        of_steps = [name for name in columns if name == "gradient_norm" or name.startswith(effective(""))]
        trained = np.any([~np.isnan(columns[name]) for name in of_steps], axis=0) if of_steps else slice(0)
        at = columns.pop("step", np.zeros(0))[trained]
        known = (at >= 0) & (at < step) & (at == np.floor(at))
        at, is_missing = at[known].astype(int), np.ones(step, bool)
        is_missing[at] = False
        self._keep(step, at, {name: column[trained][known] for name, column in columns.items()})
        return _ranges(is_missing)

    def _keep(self, step: int, at: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
        """Keeps rows that were read, with nan at the steps that are missing."""
        kept = {
            name: np.full(step, math.nan, np.float32)
            for name in columns
            if name != "time" and not name.startswith("eval_")
        }
        for name, column in kept.items():
            column[at] = columns[name]
        self._kept = [Rows(range(step), kept)]
        self.latest = {name: float(column[at[-1]]) for name, column in kept.items()} if len(at) else {}

    def history(self) -> dict[str, np.ndarray]:
        """All metrics of all steps."""
        names = self._kept[-1].columns if self._kept else {}
        return {name: np.concatenate([_column(name, rows) for rows in self._kept]) for name in names}

    def stop(self) -> None:
        """Ends the thread, after an exception too: what the host knows is written if it can be."""
        with contextlib.suppress(JournalError):
            self.write()
        self._thread.shutdown()

    def close(self) -> None:
        try:
            self.write()
        finally:
            self._thread.shutdown()
            if self._board:
                self._board.close()


def _column(name: str, rows: Rows) -> np.ndarray:
    return rows.columns.get(name, np.full(len(rows.steps), math.nan, np.float32))


def _ranges(holds: np.ndarray) -> list[range]:
    """Where it holds.

    >>> _ranges(np.array([True, False, True, True]))
    [range(0, 1), range(2, 4)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], holds.astype(np.int8), [0]]))).tolist()
    return [range(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=True)]
