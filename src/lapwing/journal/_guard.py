"""Notices that the folder of a run, or its metrics, are deleted, moved or replaced while the run is written.

An open file takes lines after its name is gone, and a folder that is missing could simply be made again: a run would
end well, and nobody would find its numbers. So the names are compared with what was opened, once a second while
something is recorded, and at the end.
"""

import os
import time
from pathlib import Path

from ._append import LineWriter
from ._errors import JournalError
from ._mount import is_on_one_machine

CHECK_EVERY_S = 1.0


class FilesLostError(JournalError):
    """What a run has recorded was taken away while it ran."""


class Guard:
    """Compares the folder and the metrics of a run with those that its writer has opened."""

    def __init__(self, folder: Path, metrics: LineWriter):
        self._folder, self._metrics = folder, metrics
        self._opened = os.stat(folder)
        # Shared file systems, above all those of FUSE, may number the same file differently after a while.
        self._has_numbers = is_on_one_machine(folder)
        self._check_after = 0.0

    def check(self) -> None:
        """Raises `FilesLostError` if something is gone; looks at most once a second."""
        now = time.monotonic()
        if now >= self._check_after:
            self._check_after = now + CHECK_EVERY_S
            if error := self.error():
                raise error

    def error(self) -> FilesLostError | None:
        """What is gone, now."""
        name = self._folder.name
        if not self.has_folder():
            return FilesLostError(
                f"the folder of the run {name} was deleted, moved or replaced while it ran, so nothing more can be "
                f"recorded in {self._folder}; start the run again"
            )
        if what := self._metrics.lost(by_number=self._has_numbers):
            return FilesLostError(
                f"metrics.jsonl of the run {name} was {what} while it ran, in {self._folder}; a run that is resumed "
                "continues from its newest checkpoint, without the metrics that are lost"
            )
        return None

    def has_folder(self) -> bool:
        """Whether the folder is the one that was opened."""
        try:
            there = os.stat(self._folder)
            return not self._has_numbers or os.path.samestat(there, self._opened)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # Of a disk that does not answer now nothing is known.
            return True
