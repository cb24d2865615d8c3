"""A copy of the small files of all runs of a store, for those who only read: lists, pages, the board.

It is in the user's cache folder and can be deleted at any time. A run whose manifest is the same as before costs
nothing; of the others only what is new is downloaded. Checkpoints stay in the store.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lapwing.core import cache_folder, replace_file

from ._download import download, is_small
from ._manifest import SWEEP, Manifest
from ._remote import DamagedError, Store, StoreError
from ._run import RemoteRun, remote_runs, with_newest

REFRESH_S = 5.0
"""Time between two looks at the store by `following`."""
_SEEN, _SEEN_SWEEP = ".manifest", ".manifest-of-sweep"
_THREADS = 8


class Mirror:
    """The runs of a store as a runs folder, `folder`, that is as new as the last `refresh`.

    >>> import tempfile
    >>> from lapwing.journal import Run, run_folders
    >>> from lapwing.store import push
    >>> with Run.create("demo", runs_dir=tempfile.mkdtemp(), name="a") as run:
    ...     run.log({"step": 1, "loss": 0.5})
    >>> _ = push(run.folder, "memory://example-of-mirror")
    >>> mirror = Mirror("memory://example-of-mirror", Path(tempfile.mkdtemp()))
    >>> mirror.refresh()
    >>> [Run.open(folder).latest()["loss"] for folder in run_folders(mirror.folder)]
    [0.5]
    """

    def __init__(self, url: str, cache: Path | None = None):
        self.store = Store(url)
        key = hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]
        self.folder = (cache or cache_folder()) / key
        self.damaged: dict[str, str] = {}
        """What is wrong with runs that cannot be read, by name."""

    def refresh(self) -> None:
        """Downloads what is new, and removes runs that the store no longer has."""
        runs = remote_runs(self.store)
        with self._alone(), ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self._update, runs.values()))
            self._remove_others(set(runs))

    def _update(self, run: RemoteRun) -> None:
        name, is_sweep, _ = run.name.partition(f"/{SWEEP}")
        folder = self.folder / name
        seen = folder / (_SEEN_SWEEP if is_sweep else _SEEN)
        if _text(seen) == "\n".join(run.manifests):
            return
        folder.mkdir(parents=True, exist_ok=True)
        self.damaged.pop(run.name, None)
        try:
            with_newest(run, lambda now, manifest: self._bring(now, manifest, folder))
        except DamagedError as error:  # It must not hide the others.
            self.damaged[run.name] = str(error)
            if not is_sweep:
                replace_file(folder / "config.json", json.dumps({"unreadable": str(error)}))
        replace_file(seen, "\n".join(run.manifests))

    def _bring(self, run: RemoteRun, manifest: Manifest, folder: Path) -> None:
        download(run, manifest, folder, is_small)
        lock = folder / "lock"
        if manifest.writer is None:
            lock.unlink(missing_ok=True)
        else:  # A reader takes it for what it is: a process on another machine, seen at that time.
            owner = {
                "pid": manifest.writer.get("pid"),
                "host": f"{manifest.writer.get('host')} ({self.store})",
            }
            replace_file(lock, json.dumps(owner))
            for path in (lock, folder / "metrics.jsonl", folder / "events.jsonl"):
                with contextlib.suppress(FileNotFoundError):
                    os.utime(path, (manifest.time, manifest.time))

    def _remove_others(self, names: set[str]) -> None:
        for seen in [*self.folder.rglob(_SEEN), *self.folder.rglob(_SEEN_SWEEP)]:
            name = seen.parent.relative_to(self.folder).as_posix()
            if not names & {name, f"{name}/{SWEEP}"}:
                shutil.rmtree(seen.parent, ignore_errors=True)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time, and one sentence if the cache cannot be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with open(self.folder / ".lock", "w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise StoreError(
                f"cannot write to {self.folder}: {error.strerror}; name another with XDG_CACHE_HOME"
            ) from error


@contextlib.contextmanager
def following(mirror: Mirror) -> Iterator[None]:
    """Refreshes a mirror every few seconds, by a thread. What cannot be reached now is tried again.

    >>> import tempfile
    >>> from lapwing.journal import run_folders
    >>> mirror = Mirror("memory://example-of-following", Path(tempfile.mkdtemp()))
    >>> with following(mirror):
    ...     run_folders(mirror.folder)
    []
    """
    ending = threading.Event()

    def refresh() -> None:
        while not ending.wait(REFRESH_S):
            with contextlib.suppress(StoreError):
                mirror.refresh()

    thread = threading.Thread(target=refresh, name="lapwing mirror", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()


def list_runs(url: str) -> list[str]:
    """The names of the runs in a store.

    >>> import tempfile
    >>> from lapwing.journal import Run
    >>> from lapwing.store import push
    >>> with Run.create("demo", runs_dir=tempfile.mkdtemp(), name="a") as run:
    ...     run.log({"step": 1, "loss": 0.5})
    >>> _ = push(run.folder, "memory://example-of-list-runs")
    >>> list_runs("memory://example-of-list-runs")
    ['a']
    """
    return [name for name in remote_runs(Store(url)) if not name.endswith(f"/{SWEEP}")]


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
