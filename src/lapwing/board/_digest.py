"""The numbers of one run, read on and on, and kept in little memory.

`read_on` reads one block of what is new in metrics.jsonl, so a reader of many runs can take turns. Of a long file that
was never read a few lines from all over it are shown at once, as a preview, until all of it is read.

Where a run went back to an earlier step, what was logged from that step on is no part of it any more. A bucket of a
curve cannot forget some of its rows, so it must not see them: the places at which the file goes back are looked for
first (to search a file for a word is much faster than to read it), and when a new one appears the file is read again
from its beginning, while what was found before is still shown.
"""

import math
import mmap
import os
import threading
from collections.abc import Iterable
from pathlib import Path

from lapwing.journal import BACK_TO, Run, Tail

from ._found import Found, Record, number
from ._series import Series

_LITTLE = 1 << 20
"""So many bytes are read in no time, and keep no other thread waiting."""
_LONG = 1 << 23
"""What is longer takes a while, and gets a preview of so many places."""
_PLACES = 512


class Digest:
    """What is known of a run's metrics. Everything is behind `lock`, for one thread reads and others look.

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
        """Raised with all that is read."""
        self.reading = 0
        """Raised when other curves are shown: those of an earlier one are not continued."""
        self._run = run
        self._keeps_curves = True
        self.shown = Found(run.created)
        self._begin()

    def _begin(self) -> None:
        self._growing = Found(self._run.created, self._keeps_curves)
        self._tail = self._run.follow("metrics")
        self._returns: list[float] | None = None
        """The steps to which the run went back, once they were looked for."""
        self._passed = 0

    @property
    def series(self) -> dict[str, Series]:
        return self.shown.series

    @property
    def nbytes(self) -> int:
        return self.shown.nbytes

    @property
    def part_read(self) -> float:
        """How much of the file has been read, from 0 to 1. The last lines of a run that grows do not count."""
        size = _size(self._tail.path)
        return 1.0 if size - self._tail.position < _LITTLE else self._tail.position / size

    def read_on(self) -> bool:
        """Reads a block of what is new; False if nothing is."""
        with self.lock:
            size = _size(self._tail.path)
            if size == self._tail.position:
                return False
            if self._returns is None:
                self._returns = _returns(self._tail)
                if size > _LONG and self._keeps_curves and not self.series:
                    self._preview(size)
                    return True
            batch = next(self._tail.batches(_LITTLE), None)
            if batch:
                self._take(batch, self._returns)
                self.version += 1
            return bool(batch)

    def forget_curves(self) -> None:
        """Gives the memory back; the few numbers of a table are still followed."""
        with self.lock:
            self._keeps_curves = False
            self.shown.forget_curves()
            self._growing.forget_curves()
            self.version += 1

    def want_curves(self) -> None:
        """Reads the run again if its curves were forgotten."""
        with self.lock:
            if not self._keeps_curves:
                self._keeps_curves = True
                self._begin()

    def _preview(self, size: int) -> None:
        """What the whole of a long run looks like, before all of it is read."""
        preview = Found(self._run.created)
        preview.take(_some_rows(self._tail, size))
        preview.best = preview.best_step = None  # It may be anywhere in between.
        self._show(preview)

    def _take(self, batch: list[Record], returns: list[float]) -> None:
        for stretch, goes_back in _stretches(batch):
            self._growing.take(stretch, before=min(returns[self._passed :], default=math.inf))
            self._passed += goes_back
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
    """Two lines from each of many places of a file, by their steps."""
    found = []
    with open(tail.path, "rb") as file:
        for place in range(_PLACES):
            file.seek(place * size // _PLACES)
            file.readline()  # It is probably the end of a line.
            found += [tail.parse_line(file.readline()) for _ in range(2)]
        file.seek(-min(size, _LITTLE), os.SEEK_END)
        found += [tail.parse_line(line) for line in file.readlines()[-2:]]
    rows = {step: row for row in found if row and not math.isnan(step := number(row.get("step")))}
    return [rows[step] for step in sorted(rows)]


def _returns(tail: Tail) -> list[float]:
    """The steps to which a run went back, in the order in which it did."""
    word = f'"{BACK_TO}"'.encode()
    found = []
    try:
        with open(tail.path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            at = content.find(word)
            while at >= 0:
                file.seek(content.rfind(b"\n", 0, at) + 1)
                record = tail.parse_line(file.readline())
                if record and BACK_TO in record:
                    step = number(record[BACK_TO])
                    found.append(math.inf if math.isnan(step) else step)
                at = content.find(word, file.tell())
    except (OSError, ValueError):  # There is no file yet, or nothing is in it.
        pass
    return found


def _stretches(batch: list[Record]) -> Iterable[tuple[list[Record], bool]]:
    """The batch in parts, each with whether the run went back after it."""
    start = 0
    for place in [place for place, record in enumerate(batch) if BACK_TO in record]:
        yield batch[start:place], True
        start = place + 1
    yield batch[start:], False
