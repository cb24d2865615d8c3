"""`lapwing export RUN`: what a run has learned, as a file that other programs read."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from lapwing.core import LapwingError
from lapwing.journal import Run, arrays_of, find_run, write_npz, write_safetensors

from .output import print_json, print_lines
from .parse import RUNS, Json, RunName, RunsFolder
from .which import Best, Newest, Step, chosen

Format = Annotated[
    Literal["safetensors", "npz"],
    tyro.conf.arg(help="safetensors, for every framework, or npz, for numpy"),
]
Part = Annotated[
    str, tyro.conf.arg(help="params, or another part of the state: ema, model, where the run has it")
]
Out = Annotated[
    Path | None, tyro.conf.arg(metavar="FILE", help="the file; default: the name of the run, here")
]
_OTHERS = {
    "ema": "averaged parameters, with which it was evaluated",
    "model": "a state of the model, such as the statistics of batch normalization",
}


class ExportError(LapwingError, ValueError):
    """A file that could not be written."""


def export(
    run: RunName,
    *,
    format: Format = "safetensors",  # noqa: A002 - the name of the option
    out: Out = None,
    step: Step = None,
    best: Best = False,
    newest: Newest = False,
    part: Part = "params",
    runs_dir: RunsFolder = RUNS,
    as_json: Json = False,
) -> None:
    """Writes the parameters of a run to one file. The arrays are named by their paths: `layers/0/w`."""
    source = Run.open(find_run(run, runs_dir))
    checkpoint = source.checkpoint(chosen(step, best, newest))
    arrays = {name or part: array for name, array in arrays_of(checkpoint, part).items()}
    path = out or Path(f"{source.name}.{format}")
    about = {"run": source.name, "experiment": source.experiment, "step": str(checkpoint.step)}
    try:
        if format == "npz":
            write_npz(path, arrays)
        else:
            write_safetensors(path, arrays, about)
    except OSError as error:
        raise ExportError(
            f"cannot write {str(path)!r}: {error.strerror}; name another file with --out"
        ) from error
    size = sum(array.size for array in arrays.values())
    if as_json:
        print_json({**about, "step": checkpoint.step, "file": path, "arrays": list(arrays), "numbers": size})
    else:
        print_lines(f"{path}: {len(arrays)} arrays, {size} numbers, of step {checkpoint.step}")
        parts = {name.partition("/")[0] for name in checkpoint.leaves}
        for other in sorted(parts & _OTHERS.keys()) if part == "params" else ():
            print(f"the run also has {_OTHERS[other]}: --part {other}")
