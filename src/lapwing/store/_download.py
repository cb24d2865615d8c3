"""From a store to a run folder, every byte compared with the checksums of the manifest.

A new run is put together in a hidden folder, which gets the run's name when it is complete; a pull that is interrupted
continues there. Of a run that is here already, what the store has in addition is added. Numbers come before
checkpoints, so that no checkpoint knows of more steps than the metrics, whenever the process is killed.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from lapwing.core import replace_file
from lapwing.journal import JournalError, Run

from ._manifest import SWEEP, Manifest, sha256_of
from ._remote import BLOCK, DamagedError, Store, StoreError
from ._run import Progress, RemoteRun, choose, no_progress, with_newest

_CHECKPOINTS = "checkpoints/"
_THREADS = 8


@dataclass
class Pulled:
    """A run that was brought here: its name and folder, the bytes that were new, and the checkpoints that were left out
    since they are damaged in the store."""

    name: str
    folder: Path
    size: int = 0
    damaged: list[str] = field(default_factory=list)


def pull(
    url: str,
    name: str | None = None,
    runs_dir: str | os.PathLike[str] = "runs",
    *,
    checkpoints: bool = True,
    progress: Progress = no_progress,
) -> list[Pulled]:
    """Downloads a run, or a sweep, or all runs of a store, into a runs folder. `lapwing resume` continues them there.

    **Arguments**
    - `name`: a name in the store, or a part of one that no other has; by default everything under the URL.
    - `checkpoints=False` leaves the checkpoints in the store, for a look at the numbers.

    **Raises** `StoreError` if a file is not what was uploaded. A checkpoint that is not is left out, and named.

    >>> import tempfile
    >>> from lapwing.store import push
    >>> with Run.create("demo", runs_dir=tempfile.mkdtemp(), name="a") as run:
    ...     run.log({"step": 1, "loss": 0.5})
    >>> _ = push(run.folder, "memory://example-of-pull")
    >>> (pulled,) = pull("memory://example-of-pull", "a", tempfile.mkdtemp())
    >>> Run.open(pulled.folder).latest()["loss"], pulled.damaged
    (0.5, [])
    """
    runs = _chosen(url, name)
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting = [
            pool.submit(_pull_one, run, Path(runs_dir), wants_all if checkpoints else is_small, progress)
            for run in runs
        ]
        try:
            return [each.result() for each in waiting]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def wants_all(file: str) -> bool:
    return True


def is_small(file: str) -> bool:
    """Whether a file is needed to look at a run."""
    return not file.startswith(_CHECKPOINTS)


def _chosen(url: str, name: str | None) -> list[RemoteRun]:
    """What is to be pulled. The URL itself may be that of a run."""
    if name is None:
        parent, _, last = url.rstrip("/").rpartition("/")
        if last and RemoteRun.find(Store(parent), last).manifests:
            return [RemoteRun.find(Store(parent), last)]
    return choose(Store(url), name)


def _pull_one(run: RemoteRun, runs_dir: Path, wants: Callable[[str], bool], progress: Progress) -> Pulled:
    is_sweep = run.name.endswith(f"/{SWEEP}")
    folder = runs_dir / run.name.removesuffix(f"/{SWEEP}")
    pulled = Pulled(run.name, folder)
    is_new = not is_sweep and not folder.exists()
    target = folder.with_name(f".{folder.name}.pulled") if is_new else folder

    def bring(now: RemoteRun, manifest: Manifest) -> None:
        if not is_new and not is_sweep:
            _check_not_newer(folder, now, manifest)
        pulled.size += download(now, manifest, target, wants, pulled.damaged, progress)

    with_newest(run, bring)
    if is_new:
        try:
            target.rename(folder)
        except OSError as error:
            raise StoreError(f"cannot make {folder} of {target}: {error.strerror}; pull again") from error
    return pulled


def _check_not_newer(folder: Path, run: RemoteRun, manifest: Manifest) -> None:
    """**Raises** `StoreError` if a run that is here knows of something that the store does not have."""
    try:
        here = Run.open(folder)
        state, mine = here.state, (folder / "events.jsonl").read_bytes()
    except (JournalError, OSError) as error:
        raise StoreError(f"{folder} is in the way ({error}); move it, or pull into another folder") from error
    if state in ("running", "paused"):
        raise StoreError(
            f"the run {here.name} is {state} in {folder.parent}; stop it, or pull into another folder"
        )
    theirs = b"".join(
        block for name, _ in manifest.parts("events.jsonl") for block in run.store.read(f"{run.name}/{name}")
    )
    if not theirs.startswith(mine):
        raise StoreError(
            f"{folder} is not an earlier state of {run}: it is another run, or was continued here; push it, or pull "
            "into another folder with --runs"
        )


def download(
    run: RemoteRun,
    manifest: Manifest,
    folder: Path,
    wants: Callable[[str], bool] = wants_all,
    damaged: list[str] | None = None,
    progress: Progress = no_progress,
) -> int:
    """Makes the files of a folder those of the manifest and returns the number of bytes that were new.

    **Arguments:** to `damaged` the sentences about damaged checkpoints are added; by default they are raised.
    """
    total = 0
    # What is not a checkpoint comes first; then the oldest checkpoint.
    for file in sorted(filter(wants, manifest.files), key=lambda file: (file.startswith(_CHECKPOINTS), file)):
        try:
            total += _bring(run, manifest, file, folder / file, progress)
        except DamagedError as error:
            if damaged is None or not file.startswith(_CHECKPOINTS):
                raise
            damaged.append(str(error))
        except OSError as error:
            raise StoreError(f"cannot write to {folder}: {error.strerror or error}; pull again") from error
    return total


def _bring(run: RemoteRun, manifest: Manifest, file: str, path: Path, progress: Progress) -> int:
    """Downloads the parts of a file that are not here."""
    here = list(_parts_here(path, manifest, file))
    new = [(name, part) for name, part in list(manifest.parts(file))[len(here) :]]
    kept = sum(here)
    missing = sum(part.size for _, part in new)
    if not missing and path.is_file() and path.stat().st_size == kept:
        return 0
    progress(0, missing)
    path.parent.mkdir(parents=True, exist_ok=True)

    def blocks() -> Iterator[bytes]:
        if kept:
            yield from _read(path, 0, kept)
        for name, part in new:
            checksum = hashlib.sha256()
            for block in run.store.read(f"{run.name}/{name}"):
                checksum.update(block)
                yield block
                progress(len(block), 0)
            if checksum.hexdigest() != part.sha256:
                raise DamagedError(
                    f"{run}/{name} is damaged: it is not what was uploaded; push the run again"
                )

    replace_file(path, blocks())
    return missing


def _parts_here(path: Path, manifest: Manifest, file: str) -> Iterator[int]:
    """The sizes of the parts that the file on disk begins with."""
    if path.is_symlink() or not path.is_file():
        return
    start = 0
    for part in manifest.files[file]:
        if sha256_of(_read(path, start, start + part.size)) != part.sha256:
            return
        yield part.size
        start += part.size


def _read(path: Path, start: int, end: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        file.seek(start)
        while start < end and (block := file.read(min(BLOCK, end - start))):
            yield block
            start += len(block)
