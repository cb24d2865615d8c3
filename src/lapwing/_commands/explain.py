"""`lapwing explain FILE.py:FUNCTION`: what `lw.accelerate` does to the loops of a function in a user's file.

The file is imported as `python FILE.py` would do it, with its own folder first on the path. An exception in the user's
code becomes one sentence with its line; an exception in `explain` itself is a bug and keeps its traceback. To tell
them apart, the function is traced once on its own first.
"""

import contextlib
import importlib.machinery
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import tyro

from lapwing import loops
from lapwing.core import suggestion
from lapwing.report import loop_picture

from .output import print_json
from .parse import Json, UsageError

# Not the file's own name: a file called random.py must not hide the module random.
MODULE = "_explained"

Target = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(
        metavar="FILE.py:FUNCTION",
        help="a function without arguments that returns (fn, args): the function to explain and its arguments",
    ),
]
Picture = Annotated[
    Path | None, tyro.conf.arg(metavar="FILE", help="draw the loop before and after: .png, .svg or .pdf")
]
Rewrite = Annotated[
    Literal["auto", "always", "never"],
    tyro.conf.arg(help="move what pays, everything possible, or nothing"),
]
Compiled = Annotated[bool, tyro.conf.arg(help="compile both programs to get their peak memory")]


def explain(
    target: Target,
    *,
    rewrite: Rewrite = "auto",
    compiled: Compiled = True,
    picture: Picture = None,
    as_json: Json = False,
) -> None:
    """Shows what lw.accelerate does to each matrix product of a function's gradient, and why."""
    fn, args = _function_and_arguments(target)
    story = loops.explain(fn, *args, rewrite=rewrite, compiled=compiled)
    if picture:
        _draw(story, picture)
    if as_json:
        print_json(story.to_json())
    else:
        print(story)
        if picture:
            print(f"picture: {picture}")


def _function_and_arguments(target: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    file, colon, name = target.rpartition(":")
    if not (file and colon and name):
        raise UsageError(f"expected FILE.py:FUNCTION, found {target!r}; write for example net.py:example")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"there is no file {file!r}; write FILE.py:FUNCTION")
    with _in_one_sentence(file, path):
        module = _imported(path)
    own = [
        key
        for key, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == MODULE
    ]
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"there is no function {name!r} in {file}; {suggestion(name, own)}")
    with _in_one_sentence(target, path):
        fn, args = _checked(function(), target)
        # As a closure, since not all arguments need be arrays.
        jax.eval_shape(lambda: fn(*args))
    return fn, args


def _imported(path: Path) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader(MODULE, str(path.resolve()))
    module = importlib.util.module_from_spec(
        importlib.machinery.ModuleSpec(MODULE, loader, origin=loader.path)
    )
    # Dataclasses and pickle look up a class in the module it names.
    sys.modules[MODULE] = module
    sys.path.insert(0, str(path.resolve().parent))
    loader.exec_module(module)
    return module


def _checked(returned: Any, target: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    match returned:
        case (fn, tuple(args)) if callable(fn):
            leaves = [leaf for leaf in jax.tree.leaves(args) if hasattr(leaf, "dtype")]
            if any(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in leaves):
                return fn, args
            raise UsageError(
                f"expected a floating-point array among the arguments that {target} returned, found none; "
                "the gradient that is explained is for such arrays"
            )
    raise UsageError(
        f"expected {target} to return (fn, args), a function and the tuple of its arguments, found "
        f"{_describe(returned)}; write for example: return loss, (params, batch)"
    )


def _describe(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(type(each).__name__ for each in value)})"
    return "None" if value is None else f"a {type(value).__name__}"


@contextlib.contextmanager
def _in_one_sentence(what: str, path: Path) -> Iterator[None]:
    """An exception of the user's code becomes one sentence with the last line reached in the file."""
    try:
        yield
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename) == path.resolve()]
        where = f" in line {lines[-1]}" if lines else ""
        first_line = str(error).strip().partition("\n")[0]
        raise UsageError(
            f"{what} raised {type(error).__name__}{where}: {first_line}".removesuffix(": ")
        ) from None


def _draw(story: loops.Explanation, picture: Path) -> None:
    try:
        loop_picture(story, picture)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot draw the picture {str(picture)!r}: {error}") from None
