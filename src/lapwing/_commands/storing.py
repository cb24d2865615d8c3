"""What commands have to do with stores: `--store URL`, `--runs URL`, and progress."""

import contextlib
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bar

from lapwing.core import hide_in_text
from lapwing.journal import RunWriter, run_name
from lapwing.store import Mirror, Progress, check_upload, following, is_url, uploading

from .parse import RUNS

StoreUrl = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="URL",
        help="upload checkpoints, metrics and the rest to object storage, such as s3://bucket/runs",
    ),
]
RunsPlace = Annotated[
    str, tyro.conf.arg(name="runs", metavar="DIR", help="folder of the runs, or the URL of a store")
]


def check_store(url: str | None, folder: Path | None = None, runs_dir: Path = RUNS) -> None:
    """Refuses a store before anything is trained for it, also one that has another run of the name of `folder`."""
    from lapwing.train import is_first

    if url is not None and is_first():
        check_upload(url, folder, stored_name(folder, runs_dir) if folder else "")


@contextlib.contextmanager
def storing(what: AbstractContextManager | Path, url: str | None, runs_dir: Path) -> Iterator[None]:
    """Uploads a run, or the folder of a sweep, until the end of the `with` block and at that end. Does nothing without
    a URL, or in a process that has no run."""
    folder = what.folder if isinstance(what, RunWriter) else what
    if url is None or not isinstance(folder, Path):
        yield
        return
    if isinstance(what, RunWriter):
        shown = hide_in_text(url)
        what.when_begun(lambda: what.event("store", f"is uploaded to {shown}", url=shown))
    with transfer() as progress, uploading(folder, url, stored_name(folder, runs_dir), progress=progress):
        yield


def stored_name(folder: Path, runs_dir: Path) -> str:
    """The name of a run, or of a sweep, in a store: the one that it has here."""
    return run_name(folder, runs_dir) if folder.is_relative_to(runs_dir) else folder.resolve().name


def runs_folder(place: str) -> Path:
    """The folder of runs at a path, or at a URL: then a copy of their small files, as they are now."""
    if not is_url(place):
        return Path(place)
    mirror = Mirror(place)
    mirror.refresh()
    for sentence in mirror.damaged.values():
        print(f"lapwing: {sentence}", file=sys.stderr)
    return mirror.folder


@contextlib.contextmanager
def followed(place: str) -> Iterator[tuple[Path, str | None]]:
    """The same for a page that stays open, with the reason why nothing can be changed there, if there is one: the copy
    of a store is refreshed until the end of the `with` block."""
    if not is_url(place):
        yield Path(place), None
        return
    mirror = Mirror(place)
    mirror.refresh()
    with following(mirror):
        yield mirror.folder, f"the runs of {mirror.store} can only be read here; steer them where they run"


@contextlib.contextmanager
def transfer(*, quiet: bool = False) -> Iterator[Progress]:
    """A bar on the terminal, from the first byte on; elsewhere nothing."""
    columns = (
        TextColumn("transferring"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    bar = Bar(
        *columns, console=Console(stderr=True), transient=True, disable=quiet or not sys.stderr.isatty()
    )
    total, task = 0, None

    def progress(done: int, more: int) -> None:
        nonlocal total, task
        if task is None:
            bar.start()
            task = bar.add_task("", total=0)
        total += more
        bar.update(task, advance=done, total=total)

    try:
        yield progress
    finally:
        bar.stop()
