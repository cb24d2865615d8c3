"""From a run folder to a store: what is complete, and only what is not there yet.

Checkpoints are opened before anything else is looked at. So the metrics that go with them are at least as new, and a
checkpoint that the run removes meanwhile can still be read. Drafts, the lock and the inbox stay where they are, and so
does the unfinished last line of a file of lines.

A file that only grows is uploaded in parts. A part that is not larger than the one after it becomes one with it, so n
bytes are about log n parts, and each byte is uploaded about log n times at most.
"""

import contextlib
import hashlib
import os
import socket
import time
from collections.abc import Container, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from lapwing.journal import run_folders, run_name

from ._manifest import NEVER_STORED, SWEEP, Manifest, Part, sha256_of
from ._remote import BLOCK, Store, StoreError
from ._run import ConflictError, Progress, RemoteRun, no_progress

_CHECKPOINTS = "checkpoints/"
_EVENTS = "events.jsonl"
_MOST_OPEN = 100


class _Local(NamedTuple):
    """A file of the run folder as it was found; `key` changes when its content does."""

    path: Path
    size: int
    key: tuple[int, ...]
    opened: IO[bytes] | None = None


Found = dict[str, _Local]


class Upload:
    """One run folder and its place in a store.

    **Raises** `ConflictError` if the store has a run of this name that is not an earlier state of this one; with
    `replace` that is replaced.
    """

    def __init__(self, folder: Path, store: Store, name: str, *, replace: bool = False):
        self.folder = folder
        self._remote = RemoteRun.find(store, name)
        before = self._remote.manifest()
        self._files, self._writer = dict(before.files), before.writer
        self._keys: dict[str, tuple[int, ...]] = {}
        with _reading():
            is_earlier = _begins_with(folder / _EVENTS, self._files.get(_EVENTS, ()))
        if not replace and not is_earlier:
            raise ConflictError(
                f"{self._remote} is another run, or was continued elsewhere; pull it into another folder, or choose "
                "another address; `lapwing push --replace` replaces it"
            )

    def sync(self, *, is_last: bool = True, progress: Progress = no_progress) -> int:
        """Uploads what is new and returns its size in bytes. `is_last` says that the run has ended; before that, the
        manifest names this process as one that is alive."""
        with _reading(), contextlib.ExitStack() as opened:
            found = _checkpoints(self.folder, self._keys, opened) | _others(self.folder)
            files, total = self._upload_new(found, progress)
        writer = None if is_last else {"pid": os.getpid(), "host": socket.gethostname()}
        if is_last and files == self._files and writer == self._writer:
            return 0
        self._remote = self._remote.commit(Manifest(time.time(), writer, files))
        self._files, self._writer = files, writer
        self._keys = {name: file.key for name, file in found.items()}
        return total

    def _upload_new(self, found: Found, progress: Progress) -> tuple[dict[str, tuple[Part, ...]], int]:
        """The parts of all files, and how many bytes were uploaded."""
        there = self._remote.store.sizes(self._remote.name)
        files, total = {}, 0
        for name, file in found.items():
            if self._keys.get(name) == file.key:
                files[name] = self._files[name]
                continue
            with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as stack:
                source = file.opened or stack.enter_context(open(file.path, "rb"))
                parts, start = self._parts_that_stay(name, source, file.size)
                if start < file.size:
                    part = Part(file.size - start, sha256_of(_blocks(source, start, file.size)))
                    target = f"{self._remote.name}/{part.object_name(name, start)}"
                    parts = (*parts, part)
                    # An upload that was interrupted may have come as far as this.
                    if there.get(target) != part.size:
                        self._put(target, source, start, part, progress)
                        total += part.size
                files[name] = parts
        return files, total

    def _parts_that_stay(self, name: str, source: IO[bytes], size: int) -> tuple[tuple[Part, ...], int]:
        """The parts in the store that the file begins with, and where the next one begins."""
        parts, start = [], 0
        for part in self._files.get(name, ()):
            end = start + part.size
            if end > size or sha256_of(_blocks(source, start, end)) != part.sha256:
                break
            parts.append(part)
            start = end
        while start < size and parts and parts[-1].size <= size - start:
            start -= parts.pop().size
        return tuple(parts), start

    def _put(self, name: str, source: IO[bytes], start: int, part: Part, progress: Progress) -> None:
        progress(0, part.size)
        checksum = hashlib.sha256()

        def blocks() -> Iterator[bytes]:
            for block in _blocks(source, start, start + part.size):
                checksum.update(block)
                yield block
                progress(len(block), 0)

        self._remote.store.write(name, blocks())
        if checksum.hexdigest() != part.sha256:
            raise StoreError(f"{source.name} changed while it was uploaded; it is uploaded the next time")


def push(
    folder: Path,
    url: str,
    name: str | None = None,
    *,
    replace: bool = False,
    progress: Progress = no_progress,
) -> dict[str, int]:
    """Uploads a run folder, or a folder of runs such as a sweep, as it is now.

    **Arguments**
    - `name`: its name in the store, by default that of the folder.
    - `replace`: replace a run of that name that is not an earlier state of this one.

    **Returns** the bytes that were new, for each run.

    >>> import tempfile
    >>> from lapwing.journal import Run
    >>> with Run.create("demo", runs_dir=tempfile.mkdtemp(), name="a") as run:
    ...     run.log({"step": 1, "loss": 0.5})
    >>> pushed = push(run.folder, "memory://example-of-push")
    >>> list(pushed), push(run.folder, "memory://example-of-push")
    (['a'], {'a': 0})
    """
    store = Store(url)
    items = items_of(folder, name or folder.resolve().name)
    if not items:
        raise StoreError(f"there is no run in {str(folder)!r} to upload; `lapwing runs` lists the runs")
    return {
        each: Upload(path, store, each, replace=replace).sync(progress=progress)
        for each, path in items.items()
    }


def check_upload(url: str, folder: Path | None = None, name: str = "") -> None:
    """**Raises** `StoreError` if nothing can be uploaded there, or this run folder cannot, under its name, before hours
    are spent on it.

    >>> check_upload("memory://example-of-check")
    >>> check_upload("nowhere://runs")
    Traceback (most recent call last):
    lapwing.store._remote.StoreError: nowhere://runs is not an address of a store (Protocol not known: nowhere); ...
    """
    store = Store(url)
    store.check()
    if folder is not None:
        Upload(folder, store, name)


def items_of(folder: Path, name: str) -> dict[str, Path]:
    """What is uploaded of a folder, by name in the store: the run, or the runs in it and what is beside them."""
    if (folder / "config.json").is_file():
        return {name: folder}
    runs = {f"{name}/{run_name(path, folder)}": path for path in run_folders(folder)}
    return runs | ({f"{name}/{SWEEP}": folder} if runs else {})


def checkpoint_names(folder: Path) -> set[str]:
    """The checkpoints of a run that are complete."""
    with contextlib.suppress(FileNotFoundError):
        return {name for name in os.listdir(folder / _CHECKPOINTS) if not name.startswith(".")}
    return set()


def _checkpoints(folder: Path, known: Container[str], opened: contextlib.ExitStack) -> Found:
    """The checkpoints; the newest of those that are not in the store yet are open, and so stay readable."""
    found: Found = {}
    names = sorted(_walk(folder / _CHECKPOINTS, _CHECKPOINTS), reverse=True)
    for place, name in enumerate(names):
        with contextlib.suppress(FileNotFoundError):  # The run has just removed it.
            file = _stat(folder / name)
            if name not in known and place < _MOST_OPEN:
                file = file._replace(opened=opened.enter_context(file.path.open("rb")))
            found[name] = file
    return found


def _others(folder: Path) -> Found:
    found: Found = {}
    for name in _walk(folder, ""):
        if not name.startswith(_CHECKPOINTS):
            with contextlib.suppress(FileNotFoundError):
                found[name] = _stat(folder / name)
    return found


def _walk(folder: Path, prefix: str) -> Iterator[str]:
    """The plain files under a folder, without what is hidden, links, and runs in it."""
    try:
        with os.scandir(folder) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    for entry in inside:
        if entry.name.startswith(".") or (not prefix and entry.name in NEVER_STORED):
            continue
        if entry.is_file(follow_symlinks=False):
            yield prefix + entry.name
        elif entry.is_dir(follow_symlinks=False) and not os.path.isfile(
            os.path.join(entry.path, "config.json")
        ):
            yield from _walk(Path(entry.path), f"{prefix}{entry.name}/")


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot read {error.filename} to upload it: {error.strerror or error}") from error


def _stat(path: Path) -> _Local:
    about = path.stat()
    size = about.st_size
    if path.suffix == ".jsonl":
        size = _end_of_last_line(path, size)
    return _Local(path, size, (about.st_ino, about.st_mtime_ns, size))


def _end_of_last_line(path: Path, size: int) -> int:
    with open(path, "rb") as file:
        while size:
            start = max(0, size - (1 << 16))
            file.seek(start)
            newline = file.read(size - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            size = start
    return 0


def _begins_with(path: Path, parts: tuple[Part, ...]) -> bool:
    """Whether a file begins with what the store has of it."""
    if not parts:
        return True
    try:
        with open(path, "rb") as file:
            start = 0
            for part in parts:
                if sha256_of(_blocks(file, start, start + part.size)) != part.sha256:
                    return False
                start += part.size
    except FileNotFoundError:
        return False
    return True


def _blocks(source: IO[bytes], start: int, end: int) -> Iterator[bytes]:
    source.seek(start)
    while start < end and (block := source.read(min(BLOCK, end - start))):
        yield block
        start += len(block)
