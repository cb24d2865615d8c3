"""Uploading while a run is trained, by a thread that the training never waits for."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ._remote import Store, StoreError
from ._run import ConflictError, Progress, no_progress
from ._upload import Upload, checkpoint_names, items_of

POLL_S = 1.0
"""Time between two looks for new checkpoints."""
BEAT_S = 240.0
"""Time after which metrics are uploaded although there is no checkpoint, so that readers know that the run is alive."""
PATIENCE_S = 60.0
"""Time for which the last upload is tried again."""
_LONGEST_WAIT_S = 300.0


class _Follower:
    """Uploads what is new in a run folder, or in the runs of a folder."""

    def __init__(self, folder: Path, store: Store, name: str, say: Callable[[str], object]):
        self._folder, self._store, self._name, self._say = folder, store, name, say
        self._uploads: dict[str, Upload] = {}
        self._seen: dict[str, tuple[set[str], float]] = {}
        self._said: str | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="lapwing upload", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the object that it is uploading, without waiting for it."""
        self._ending.set()

    def finish(self, progress: Progress) -> None:
        """Uploads the rest, and raises if that is not possible for a while: the disk may be lost after this."""
        self._ending.set()
        self._thread.join()
        until, wait = time.monotonic() + PATIENCE_S, POLL_S
        for name, folder in items_of(self._folder, self._name).items():
            while True:
                try:
                    self._upload(name, folder).sync(progress=progress)
                    break
                except StoreError as error:
                    if isinstance(error, ConflictError) or time.monotonic() + wait > until:
                        raise
                    time.sleep(wait)
                    wait *= 2

    def _follow(self) -> None:
        wait = POLL_S
        while not self._ending.wait(wait):
            try:
                self._look()
                wait, self._said = POLL_S, None
            except (StoreError, OSError) as error:
                is_final = isinstance(error, ConflictError)
                if self._said is None or is_final:  # Once, not for each attempt.
                    self._said = str(error)
                    then = "without uploads" if is_final else "and the upload is tried again"
                    self._say(f"{error}; the run continues, {then}")
                if is_final:
                    return
                wait = min(2 * wait, _LONGEST_WAIT_S)

    def _look(self) -> None:
        for name, folder in items_of(self._folder, self._name).items():
            there, now = checkpoint_names(folder), time.monotonic()
            if not there and not _has_begun(folder):
                continue
            before, when = self._seen.get(name, (None, 0.0))
            if there != before or now - when > BEAT_S:
                self._upload(name, folder).sync(is_last=False)
                self._seen[name] = there, now
            if self._ending.is_set():
                return

    def _upload(self, name: str, folder: Path) -> Upload:
        if name not in self._uploads:
            self._uploads[name] = Upload(folder, self._store, name)
        return self._uploads[name]


@contextlib.contextmanager
def uploading(
    folder: Path,
    url: str,
    name: str | None = None,
    *,
    say: Callable[[str], object] | None = None,
    progress: Progress = no_progress,
) -> Iterator[None]:
    """Uploads a run folder, or the runs of a folder, while it is written: checkpoints as they are completed, with the
    metrics, the events and the journal; the rest at the end of the `with` block.

    A store that cannot be reached does not stop the training. What is still missing at the end is an error.

    >>> import tempfile
    >>> from lapwing.journal import Run
    >>> from lapwing.store import list_runs
    >>> run = Run.create("demo", runs_dir=tempfile.mkdtemp(), name="a")
    >>> with uploading(run.folder, "memory://example-of-uploading"), run:
    ...     run.log({"step": 1, "loss": 0.5})
    >>> list_runs("memory://example-of-uploading")
    ['a']
    """
    named = name or folder.resolve().name
    store, say = Store(url), say or _say
    follower = _Follower(folder, store, named, say)
    follower.start()
    missing = f"all of it is in {folder}, and `lapwing push {named} {store}` uploads what is missing"
    try:
        yield
        follower.finish(progress)
    except StoreError as error:
        raise StoreError(f"{error}; {missing}") from error
    except Exception:  # A run that has failed is uploaded too, but what it has failed of is more important.
        try:
            follower.finish(progress)
        except StoreError as error:
            say(f"{error}; {missing}")
        raise
    except BaseException:
        follower.stop()
        say(f"the upload was interrupted; {missing}")
        raise


def _has_begun(folder: Path) -> bool:
    """Whether there is something to keep: a run that is refused at its start leaves nothing behind."""
    if not (folder / "config.json").is_file():
        return True
    with contextlib.suppress(FileNotFoundError):
        return (folder / "metrics.jsonl").stat().st_size > 0
    return False


def _say(text: str) -> None:
    print(f"lapwing: {text}", file=sys.stderr)
