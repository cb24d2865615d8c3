"""The metrics of one run, read incrementally and kept in little memory.

`read_on` reads one block of what is new in metrics.jsonl, so that a reader of many runs can take turns. A long file
that was never read gets a preview first, from a few lines at many positions, until all of it is read.

When a run returns to an earlier step, the rows from that step on are no longer part of it. A bucket of a curve cannot
forget some of its rows, so it must not get them: the file is searched for returns first (which is much faster than
parsing it), and when a new one appears the file is read again from its beginning, while the old result is still shown.
"""

import math
import os
import threading
from pathlib import Path

from lapwing.journal import BACK_TO, Run, Tail, stretches

from ._found import Found, Record, number
from ._series import Series

_BLOCK = 1 << 20
"""Bytes per read: short enough not to block other threads."""
_LONG = 1 << 23
"""A file of more bytes gets a preview, of this many positions."""
_POSITIONS = 512


class Digest:
    """A run's metrics. `lock` protects everything, since one thread reads the file and others use the result.

    >>> import tempfile
    >>> with Run.create("demo", runs_dir=tempfile.mkdtemp()) as run:
    ...     run.log(*({"step": step, "loss": (step - 3) ** 2, "time": step / 10} for step in range(6)))
    >>> digest = Digest(run)
    >>> digest.read_on(), digest.read_on()
    (True, False)
    >>> digest.shown.best, digest.shown.best_step, sorted(digest.series)
    (0.0, 3, ['loss'])
    """

    def __init__(self, run: Run):
        self.lock = threading.Lock()
        self.version = 0
        """Incremented with every read."""
        self.reading = 0
        """Incremented when the curves are replaced instead of continued."""
        self._run = run
        self._keeps_curves = True
        self.shown = Found(run.created)
        self._begin()

    def _begin(self) -> None:
        self._growing = Found(self._run.created, self._keeps_curves)
        self._tail = self._run.follow("metrics")
        self._returns: list[float] | None = None
        """The steps to which the run returned, once the file was searched for them."""
        self._passed = 0

    @property
    def series(self) -> dict[str, Series]:
        return self.shown.series

    @property
    def nbytes(self) -> int:
        return self.shown.nbytes

    @property
    def part_read(self) -> float:
        """The fraction of the file that has been read. The last block does not count, since the file may be growing."""
        size = _size(self._tail.path)
        return 1.0 if size - self._tail.position < _BLOCK else self._tail.position / size

    def read_on(self) -> bool:
        """Reads a block of new rows; False if there are none."""
        with self.lock:
            size = _size(self._tail.path)
            if size == self._tail.position:
                return False
            if self._returns is None:
                self._returns = _returns(self._tail)
                if size > _LONG and self._keeps_curves and not self.series:
                    self._preview(size)
                    return True
            batch = next(self._tail.batches(_BLOCK), None)
            if batch:
                self._take(batch, self._returns)
                self.version += 1
            return bool(batch)

    def forget_curves(self) -> None:
        """Frees the memory of the curves; the numbers of the table are still updated."""
        with self.lock:
            self._keeps_curves = False
            self.shown.forget_curves()
            self._growing.forget_curves()
            self.version += 1

    def want_curves(self) -> None:
        """Reads the run again if its curves were freed."""
        with self.lock:
            if not self._keeps_curves:
                self._keeps_curves = True
                self._begin()

    def _preview(self, size: int) -> None:
        """Shows a sample of a long run before all of it is read."""
        preview = Found(self._run.created)
        preview.take(_some_rows(self._tail, size))
        preview.best = preview.best_step = None  # The sample may have missed it.
        self._show(preview)

    def _take(self, batch: list[Record], returns: list[float]) -> None:
        for stretch, back_to in stretches(batch):
            self._growing.take(stretch, before=min(returns[self._passed :], default=math.inf))
            self._passed += back_to is not None
        if self._passed > len(returns):
            self._begin()
        elif self.part_read == 1.0 and self.shown is not self._growing:
            self._show(self._growing)

    def _show(self, found: Found) -> None:
        self.shown = found
        self.reading += 1
        self.version += 1


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _some_rows(tail: Tail, size: int) -> list[Record]:
    """Two lines at each of many positions of a file, sorted by step."""
    found = []
    file = tail.open()
    if file is None:
        return []
    with file:
        for position in range(_POSITIONS):
            file.seek(position * size // _POSITIONS)
            file.readline(_BLOCK)  # Probably the rest of a line.
            found += [tail.parse_line(file.readline(_BLOCK)) for _ in range(2)]
        file.seek(-min(size, _BLOCK), os.SEEK_END)
        found += [tail.parse_line(line) for line in file.read(_BLOCK).split(b"\n")[-3:-1]]
    rows = {step: row for row in found if row and not math.isnan(step := number(row.get("step")))}
    return [rows[step] for step in sorted(rows)]


def _returns(tail: Tail) -> list[float]:
    """The steps to which a run returned, in order."""
    words = (f'"{BACK_TO}"'.encode(), b"\\u")  # JSON may write any letter as an escape.
    blocks = (block for block in tail.blocks() if any(word in block for word in words))
    lines = (line for block in blocks for line in block.split(b"\n") if any(word in line for word in words))
    records = filter(None, map(tail.parse_line, lines))
    return [float(record[BACK_TO]) for record in records if BACK_TO in record]
