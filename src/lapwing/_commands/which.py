"""`--best`, `--newest` and `--step N`: which checkpoint of a run a command takes."""

from typing import Annotated, Literal

import tyro

from .parse import Flag, UsageError

Step = Annotated[int | None, tyro.conf.arg(metavar="N", help="take the checkpoint of this step")]
Best = Annotated[
    Flag,
    tyro.conf.arg(
        help="take the best checkpoint: the default, except where an evaluation has its own measure"
    ),
]
Newest = Annotated[Flag, tyro.conf.arg(help="take the newest checkpoint")]


def chosen(
    step: int | None, best: bool, newest: bool, default: Literal["best", "newest"] = "best"
) -> Literal["best", "newest"] | int:
    """The one that was asked for."""
    named = {"step": step is not None, "best": best, "newest": newest}
    given = [name for name, asked in named.items() if asked]
    if len(given) > 1:
        raise UsageError(f"--{given[0]} and --{given[1]} are two checkpoints; give one of them")
    if step is not None:
        return step
    return "best" if best else "newest" if newest else default
