"""All runs of a runs folder, by name, and one thread that reads what is new in them.

A requested name is looked up among the names that were found and never joined to a path, so no spelling of it leads out
of the folder. One thread reads everything, a block at a time and runs on open pages first, so that ten open pages cost
as much as one, and an opened run does not wait for the others. When all curves together need too much memory, the least
recently used ones are freed.
"""

import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from lapwing.core import LapwingError
from lapwing.journal import JournalError, Run, flat, run_folders, run_name, still_part, to_json

from ._digest import Digest

MOST_BYTES = 256 << 20
"""Memory limit for the curves of all runs."""
PAUSE_S, PAUSE_UNWATCHED_S = 0.25, 2.0
"""Pause of the reader when a page is open, and when none is."""
WATCHED_S = 5.0
NEVER = -math.inf
_PASS_S = 0.5
"""Time for which it reads before it looks for new runs."""
_SKETCH_POINTS = 48
_MOST_SETTINGS = 500
_SWEEP = "sweep.json"
_T = TypeVar("_T")
_FILES = ("metrics.jsonl", "events.jsonl", "lock", "laps.json", "pictures")


class UnknownError(LapwingError, LookupError):
    """There is no run, sweep or picture of this name."""


class Kept:
    """One run of the shelf: its row of the table, and its curves."""

    def __init__(self, name: str, folder: Path):
        self.name = name
        self.wanted = NEVER
        """When it was last requested."""
        self.version = 0
        self.row: dict[str, Any] = {}
        self.news: list[Any] = []
        """Changes when anything except numbers does: events, laps, pictures."""
        self.logged: list[dict[str, Any]] = []
        """The texts, images and so on that are part of the run, oldest first."""
        self._rollbacks = 0
        self._tags: list[str] = []
        self._last = ""
        self._seen: list[Any] = []
        self._sketch: list[float | None] = []
        self.run = Run.open(folder)
        self.digest = Digest(self.run)
        self.look()

    def look(self) -> None:
        """Updates the row if anything about the run has changed."""
        seen = _seen(self.run.folder)[1:]
        if [self.digest.version, *seen] == self._seen and self.row["state"] not in ("running", "paused"):
            return
        if self._seen[2:3] != seen[1:2]:
            self._read_events()
        self._seen = [self.digest.version, *seen]
        self.row = self._row()
        self.news = [self.row["state"], *seen[1:]]
        if (now := to_json([self.row, self.news])) != self._last:
            self._last = now
            self.version += 1

    @property
    def group(self) -> str | None:
        """The folder of runs that it is in, such as a sweep, by its name; None if it is in the runs folder itself."""
        return self.name.rpartition("/")[0] or None

    @property
    def settings(self) -> dict[str, Any]:
        """The config as names and values, for columns of the table."""
        return dict(list(flat(self.run.config))[:_MOST_SETTINGS])

    def _read_events(self) -> None:
        events = self.run.events()
        self.logged = still_part(events)
        self._tags = self.run.tags
        self._rollbacks = sum(event.get("event") == "rollback" for event in events)

    def _row(self) -> dict[str, Any]:
        run, digest = self.run, self.digest
        with digest.lock:
            found = digest.shown
            latest, numbers, speed = dict(found.latest), dict(found.numbers), found.speed
            if loss := found.series.get("loss"):
                self._sketch = loss.sketch(_SKETCH_POINTS)
        return {
            "run": self.name,
            "group": self.group,
            "sweep": self.group if (run.folder.parent / _SWEEP).is_file() else None,
            "experiment": run.experiment,
            "state": run.state,
            "created": run.created,
            "step": latest.get("step"),
            "steps": run.config.get("steps") if isinstance(run.config, dict) else None,
            "loss": latest.get("loss"),
            "best": found.best,
            "best_step": found.best_step,
            "effective_learning_rate": latest.get("effective_learning_rate", latest.get("learning_rate")),
            "metrics": numbers,
            "speed": speed,
            "rollbacks": self._rollbacks,
            "logged": len(self.logged),
            "tags": self._tags,
            "sketch": self._sketch,
            "part_read": round(digest.part_read, 2),
        }


class Shelf:
    """The runs of a folder, followed by a thread between `start` and `stop`.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with Run.create("demo", runs_dir=folder) as run:
    ...     run.log({"step": 1, "loss": 0.5})
    >>> shelf = Shelf(folder)
    >>> shelf.look()
    False
    >>> [row["state"] for row in shelf.rows()], shelf.get(run.name).row["loss"]
    (['finished'], 0.5)
    >>> shelf.get("../" + run.name)
    Traceback (most recent call last):
    lapwing.board._shelf.UnknownError: there is no run '../...' in ...; the page of all runs lists them
    """

    def __init__(self, folder: str | Path, most_bytes: int = MOST_BYTES, read_only: str | None = None):
        self.folder = Path(folder)
        self.read_only = read_only
        """Why no run can be steered, or None."""
        self.trouble: str | None = None
        """Why the folder cannot be read, or None."""
        self._most_bytes = most_bytes
        self._kept: dict[str, Kept] = {}
        self._unreadable: dict[str, _Unreadable] = {}
        self._wanted = NEVER
        self._finding = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._follow, name="board-reader", daemon=True)

    def start(self) -> None:
        self._find()
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def get(self, name: str) -> Kept:
        """A run by its exact name; it counts as watched from now on."""
        if name not in self._kept:
            self._find()  # It may be new.
        kept = self._kept.get(name)
        if bad := self._unreadable.get(name):
            raise UnknownError(bad.row["error"])
        if kept is None:
            raise UnknownError(
                f"there is no run {name!r} in {str(self.folder)!r}; the page of all runs lists them"
            )
        watched, kept.wanted = _is_recent(kept.wanted), time.monotonic()
        kept.digest.want_curves()
        if not watched:
            self._wake.set()
        return kept

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table, newest first."""
        watched, self._wanted = _is_recent(self._wanted), time.monotonic()
        if not watched:
            self._wake.set()
        rows = [each.row for each in [*self._kept.values(), *self._unreadable.values()]]
        return sorted(rows, key=lambda row: row.get("created", 0.0), reverse=True)

    def settings(self, name: str) -> dict[str, Any]:
        """The config of a run as names and values; none of a run that cannot be read."""
        kept = self._kept.get(name)
        return kept.settings if kept else {}

    def sweeps(self) -> dict[str, Path]:
        """The folders of the sweeps, by name."""
        try:  # A new one has no points yet.
            inside = [path for path in self.folder.iterdir() if path.is_dir() and not path.is_symlink()]
        except OSError:
            return {}
        found = {path.name: path for path in inside}
        found |= {kept.group: kept.run.folder.parent for kept in list(self._kept.values()) if kept.group}
        return {name: path for name, path in sorted(found.items()) if (path / _SWEEP).is_file()}

    def look(self) -> bool:
        """Finds runs and reads what is new in them, for a while; returns whether there is more to read."""
        self._find()
        until = time.monotonic() + _PASS_S
        more = False
        for kept in sorted(self._kept.values(), key=_by_interest, reverse=True):
            while more := bool(self._isolated(kept, kept.digest.read_on)):
                if self._wake.is_set() or time.monotonic() >= until:
                    break
            if more:
                break
        for kept in list(self._kept.values()):
            self._isolated(kept, kept.look)
        self._save_memory()
        return more

    def _follow(self) -> None:
        while not self._stopping:
            if not self.look():
                watched = _is_recent(max([self._wanted, *(kept.wanted for kept in self._kept.values())]))
                self._wake.wait(PAUSE_S if watched else PAUSE_UNWATCHED_S)
            self._wake.clear()

    def _find(self) -> None:
        with self._finding:
            self._find_runs()

    def _find_runs(self) -> None:
        try:
            folders = {run_name(folder, self.folder): folder for folder in run_folders(self.folder)}
            self.trouble = None
        except JournalError as error:
            self.trouble, folders = str(error), {}
        kept, unreadable = {}, {}
        for name, folder in folders.items():
            bad = self._unreadable.get(name)
            if bad and bad.seen == _seen(folder):
                unreadable[name] = bad
                continue
            try:
                kept[name] = self._kept.get(name) or Kept(name, folder)
            except Exception as error:
                unreadable[name] = _Unreadable(name, folder, error)
        self._kept, self._unreadable = kept, unreadable

    def _isolated(self, kept: Kept, action: Callable[[], _T]) -> _T | None:
        """Does something with one run. Whatever goes wrong, that run is unreadable, and the reader lives on: if its
        thread died, all pages would show old numbers as if they were new.
        """
        try:
            return action()
        except Exception as error:
            self._kept.pop(kept.name, None)
            self._unreadable[kept.name] = _Unreadable(kept.name, kept.run.folder, error)
            return None

    def _save_memory(self) -> None:
        longest_unseen = sorted(self._kept.values(), key=_by_interest)
        used = sum(kept.digest.nbytes for kept in longest_unseen)
        for kept in longest_unseen:
            if used <= self._most_bytes:
                return
            used -= kept.digest.nbytes
            kept.digest.forget_curves()


class _Unreadable:
    """A run that cannot be read. It is tried again when one of its files has changed."""

    def __init__(self, name: str, folder: Path, error: Exception):
        is_known = isinstance(error, LapwingError)
        why = str(error) if is_known else f"unexpected {type(error).__name__}: {error}"
        self.row = {"run": name, "state": "unreadable", "error": why}
        self.seen = _seen(folder)


def _seen(folder: Path) -> list[tuple[int, int] | None]:
    return [_changed(folder / name) for name in ("config.json", *_FILES)]


def _by_interest(kept: Kept) -> tuple[float, float]:
    """Most recently watched first, then newest first."""
    return kept.wanted, kept.run.created


def _is_recent(moment: float) -> bool:
    return time.monotonic() - moment < WATCHED_S


def _changed(path: Path) -> tuple[int, int] | None:
    """The modification time and the size of a file."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size
