"""Deleting a run. Its folder is renamed to a hidden name first, so a killed process leaves no half of a run."""

import os
import re
import secrets
import shutil
from pathlib import Path

from ._errors import JournalError, writing_to
from ._lock import Lock

_REMOVED = re.compile(r"\..*-[0-9a-f]{8}\.removed")


def remove_run(folder: Path) -> None:
    """Deletes the folder of a run for good, and what is left of runs beside it whose deletion was interrupted.

    **Raises** `JournalError` if a process writes the run.

    >>> import tempfile
    >>> from lapwing.journal import Run, run_folders
    >>> with Run.create("demo", runs_dir=tempfile.mkdtemp()) as run:
    ...     pass
    >>> remove_run(run.folder)
    >>> run_folders(run.folder.parent)
    []
    """
    if folder.is_symlink():
        raise JournalError(f"{str(folder)!r} is a link; name the folder that it leads to")
    with writing_to(folder.parent):
        lock = Lock(folder)
        try:
            folder.rename(folder.with_name(f".{folder.name}-{secrets.token_hex(4)}.removed"))
        finally:
            lock.release()
        for name in os.listdir(folder.parent):
            if _REMOVED.fullmatch(name):
                shutil.rmtree(folder.parent / name)
