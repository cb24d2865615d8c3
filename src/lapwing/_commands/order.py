"""`lapwing tag` and `lapwing rm`: keeping runs in order."""

import sys
from typing import Annotated

import tyro

from lapwing.core import format_list
from lapwing.journal import Run, find_run, remove_run, run_name

from .output import print_json, print_lines
from .parse import RUNS, Json, RunName, RunsFolder, UsageError

_DECLINED = 1

Tags = Annotated[
    tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TAG", help="words such as best")
]
Remove = Annotated[bool, tyro.conf.arg(help="remove these tags instead of adding them")]
RunNames = Annotated[
    tuple[str, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="RUN", help="names of runs, parts of names, paths, or latest"),
]
Yes = Annotated[bool, tyro.conf.arg(help="do not ask")]


def tag(
    run: RunName,
    tags: Tags = (),
    *,
    remove: Remove = False,
    runs_dir: RunsFolder = RUNS,
    as_json: Json = False,
) -> None:
    """Adds tags to a run, or removes them; without tags, shows those that it has. `lapwing runs --tag` finds them."""
    chosen = Run.open(find_run(run, runs_dir))
    if remove and not tags:
        raise UsageError("remove which tags? write them after the name of the run")
    chosen.tag(*tags, remove=remove)
    if as_json:
        print_json({"run": chosen.name, "tags": chosen.tags})
    else:
        print_lines(f"{chosen.name}: {', '.join(chosen.tags) or 'no tags'}")


def rm(runs: RunNames, *, yes: Yes = False, runs_dir: RunsFolder = RUNS, as_json: Json = False) -> int:
    """Deletes runs for good. A run that is running is refused, and then nothing is deleted."""
    if not runs:
        raise UsageError("which runs? `lapwing runs` lists them")
    folders = list(dict.fromkeys(find_run(name, runs_dir) for name in runs))
    for folder in folders:
        run = Run.open(folder)
        if (state := run.state) in ("running", "paused"):
            raise UsageError(f"{run.name} is {state}; `lapwing stop {run.name}` ends it")
    names = [
        folder.name if not folder.is_relative_to(runs_dir) else run_name(folder, runs_dir)
        for folder in folders
    ]
    if not yes and not _agrees(names):
        print("nothing was deleted")
        return _DECLINED
    for folder in folders:
        remove_run(folder)
    if as_json:
        print_json({"deleted": names})
    else:
        print_lines(*(f"deleted {name}" for name in names))
    return 0


def _agrees(names: list[str]) -> bool:
    what = f"{len(names)} runs ({format_list(names)})" if len(names) > 1 else names[0]
    if not sys.stdin.isatty():
        raise UsageError(f"this would delete {what} for good; write --yes")
    return input(f"Delete {what} for good? [y/N] ").strip().lower() in ("y", "yes")
