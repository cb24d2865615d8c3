"""The metrics of a run on the host: in memory, in the run folder, and for TensorBoard.

Rows are written only after the next call has been given to the device, which then has work while the host writes.
"""

import math
from collections import deque
from collections.abc import Mapping

import numpy as np

from lapwing.journal import RunWriter

from ._config import FitConfig
from ._step import SKIPPED
from ._tensorboard import TensorBoard
from ._transfer import Rows


class Logbook:
    """Keeps the metrics of every step that was not undone, and writes them."""

    def __init__(self, run: RunWriter | None, config: FitConfig):
        self._run = run
        self._board = TensorBoard(run.folder / "tensorboard") if run and config.tensorboard else None
        self._unwritten: deque[Rows] = deque()
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

    def write(self, most: float = math.inf) -> None:
        """Writes the rows that are not written yet, or `most` of them."""
        while self._unwritten and most > 0:
            rows = self._unwritten.popleft()
            if len(rows.steps) > most:
                rows, rest = rows.split(rows.steps.start + int(most))
                self._unwritten.appendleft(rest)
            most -= len(rows.steps)
            if self._run:
                self._run.log_columns({"step": rows.steps, **rows.columns})
            if self._board:
                self._board.add(*rows)

    def add_evaluation(self, step: int, evaluation: Mapping[str, float]) -> None:
        """Takes and writes an evaluation after `step` updates."""
        self.write()
        self.evaluation, self.evaluated_at = evaluation, step
        if self._run and evaluation:
            self._run.log({"step": step, **evaluation})
        if self._board:
            self._board.add(range(step, step + 1), {k: np.asarray([v]) for k, v in evaluation.items()})

    def roll_back(self, step: int) -> None:
        """Forgets the steps from this one on, which are undone."""
        self.write()
        self.evaluated_at = None
        self._kept = [kept for rows in self._kept if (kept := rows.split(step)[0]).steps]
        if self._run:
            self._run.back_to(step)

    def restore(self, step: int) -> None:
        """Reads the metrics of the steps before this one from the folder of a run that is resumed."""
        if self._run is None:
            return
        self._run.back_to(step)
        columns = {name: np.asarray(column) for name, column in self._run.columns().items()}
        trained = ~np.isnan(columns.get("learning_rate", np.zeros(0)))
        names = [name for name in columns if name not in ("step", "time") and not name.startswith("eval_")]
        if np.count_nonzero(trained) == step:
            kept = {name: columns[name][trained].astype(np.float32) for name in names}
            self._kept = [Rows(range(step), kept)]
            self.latest = {name: float(column[-1]) for name, column in kept.items() if step}

    def history(self) -> dict[str, np.ndarray]:
        """All metrics of all steps."""
        names = self._kept[-1].columns if self._kept else {}
        return {name: np.concatenate([_column(name, rows) for rows in self._kept]) for name in names}

    def close(self) -> None:
        self.write()
        if self._board:
            self._board.close()


def _column(name: str, rows: Rows) -> np.ndarray:
    return rows.columns.get(name, np.full(len(rows.steps), math.nan, np.float32))
