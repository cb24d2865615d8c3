"""`lapwing pull URL [RUN]`: downloads what was uploaded, with every checksum compared."""

import sys
from typing import Annotated

import tyro

from lapwing.core import format_bytes
from lapwing.store import pull as pull_runs

from .output import print_json
from .parse import RUNS, Flag, Json, RunsFolder
from .storing import transfer

_DAMAGED = 1

Url = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="URL", help="a store, such as s3://bucket/runs, or a run in it"),
]
Wanted = Annotated[
    str | None,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="RUN", help="name of a run or a sweep there, or a part of one; default: all"),
]
NoCheckpoints = Annotated[Flag, tyro.conf.arg(help="only what is needed to look at the runs")]


def pull(
    url: Url,
    run: Wanted = None,
    *,
    no_checkpoints: NoCheckpoints = False,
    runs_dir: RunsFolder = RUNS,
    as_json: Json = False,
) -> int:
    """Downloads a run, a sweep, or all runs of a store. A run resumes here as it would have resumed there.

    A run that is here already gets what is new. Interrupted at any moment, pull again to continue.
    """
    with transfer(quiet=as_json) as progress:
        pulled = pull_runs(url, run, runs_dir, checkpoints=not no_checkpoints, progress=progress)
    damaged = [sentence for each in pulled for sentence in each.damaged]
    for sentence in damaged:
        print(f"lapwing: {sentence}; this checkpoint is left out", file=sys.stderr)
    if as_json:
        print_json({"runs": pulled})
    else:
        for each in pulled:
            new = f"downloaded {format_bytes(each.size)}" if each.size else "nothing is new"
            print(f"{each.name}: {new}; {each.folder}")
    return _DAMAGED if damaged else 0
