"""`lapwing push RUN URL`: uploads a run, or a sweep, as it is now."""

from pathlib import Path
from typing import Annotated

import tyro

from lapwing.core import format_bytes, hide_in_text
from lapwing.journal import find_run, run_folders
from lapwing.store import push as push_folder

from .output import print_json
from .parse import RUNS, Flag, Json, RunName, RunsFolder
from .storing import stored_name, transfer

Url = Annotated[
    str, tyro.conf.Positional, tyro.conf.arg(metavar="URL", help="a store, such as s3://bucket/runs")
]
Replace = Annotated[
    Flag, tyro.conf.arg(help="replace a run of that name that is not an earlier state of this one")
]


def push(
    run: RunName, url: Url, *, replace: Replace = False, runs_dir: RunsFolder = RUNS, as_json: Json = False
) -> None:
    """Uploads a run, or the runs of a sweep, and only what is not there yet. `lapwing pull` brings them back.

    Interrupted at any moment, the store has all of the last upload; push again to continue.
    """
    folder = _folder(run, runs_dir)
    with transfer(quiet=as_json) as progress:
        sizes = push_folder(folder, url, stored_name(folder, runs_dir), replace=replace, progress=progress)
    if as_json:
        print_json({"url": hide_in_text(url), "runs": sizes})
        return
    for name, size in sizes.items():
        new = f"uploaded {format_bytes(size)}" if size else "nothing is new"
        print(f"{name}: {new}")
    print(f"The runs are in {hide_in_text(url)}.")


def _folder(wanted: str, runs_dir: Path) -> Path:
    """The folder of a run, or of a sweep."""
    for folder in (runs_dir / wanted, Path(wanted)):
        if wanted and not (folder / "config.json").exists() and run_folders(folder):
            return folder
    return find_run(wanted, runs_dir)
