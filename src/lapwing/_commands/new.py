"""`lapwing new my_model.py`: a file to start from, which trains at once."""

from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import tyro

from lapwing.core import replace_file

from .output import print_json
from .parse import Flag, Json, UsageError

_TEMPLATES = "lapwing.experiments.templates"
# A file of this name would be imported in place of the module.
_TAKEN = ("equinox", "flax", "jax", "jaxlib", "lapwing", "numpy", "optax")

Target = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE.py", help="the file to write")]
Like = Annotated[
    Literal["gru", "transformer", "image", "flax", "equinox"],
    tyro.conf.arg(
        help="what it trains: a recurrent network, a transformer, a classifier of images, or a module"
    ),
]
Force = Annotated[Flag, tyro.conf.arg(help="replace a file that exists")]


def new(file: Target, *, like: Like = "gru", force: Force = False, as_json: Json = False) -> None:
    """Writes a file to start from: a model, its data and its options, in less than 40 lines."""
    if file.suffix != ".py":
        raise UsageError(f"the file should end in .py, but is {str(file)!r}; write {file.with_suffix('.py')}")
    if file.stem in _TAKEN:
        raise UsageError(f"{file.name} would hide the module {file.stem}; choose another name")
    if file.exists() and not force:
        raise UsageError(f"{str(file)!r} exists already; choose another name, or give --force to replace it")
    text = (resources.files(_TEMPLATES) / f"like_{like}.py").read_text(encoding="utf-8")
    try:
        replace_file(file, text.replace("FILE.py", file.name))
    except OSError as error:
        raise UsageError(f"cannot write {str(file)!r}: {error.strerror}") from None
    if as_json:
        print_json({"file": file, "like": like})
    else:
        print(f"{file} is written; train it with: lapwing train {file}")
