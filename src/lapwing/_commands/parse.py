"""Options from a function's signature or a dataclass's fields, by tyro, with errors of one sentence."""

import contextlib
import functools
import io
import re
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from lapwing.core import LapwingError

T = TypeVar("T")

_FRAME = re.compile("[│╭╮╰╯]|\x1b\\[[0-9;]*m")

# What the parser says in a programmer's words, and the same for anybody.
_PLAINER = {
    r"^error parsing config: ": "",
    r"^error parsing (\S+): invalid literal for int\(\) with base 10: (.+)": r"\1 takes a whole number, not \2",
    r"^error parsing (\S+): could not convert string to float: (.+)": r"\1 takes a number, not \2",
    r"^missing value for argument '(\S+)'\. Expected 1 values": r"\1 needs a value",
}

RunName = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="RUN", help="a run's name, the beginning of one, a path, or latest"),
]
RUNS = Path("runs")
RunsFolder = Annotated[Path, tyro.conf.arg(name="runs", metavar="DIR", help="the folder that holds the runs")]
Json = Annotated[bool, tyro.conf.arg(name="json", help="print JSON instead of a table")]


_STRATEGIES = tyro.constructors.ConstructorRegistry()


@_STRATEGIES.primitive_rule
def _short_forms(
    info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec | None:
    """An option that takes a short form or an object with an interface takes the short forms on the command line."""
    parts = typing.get_args(info.type)
    names = [part for part in parts if typing.get_origin(part) is typing.Literal]
    if not names or not any(getattr(part, "_is_protocol", False) for part in parts):
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{{{','.join(typing.get_args(names[0]))}}}",
        instance_from_str=lambda words: words[0],
        is_instance=lambda instance: True,
        str_from_instance=lambda instance: [str(instance)],
        choices=typing.get_args(names[0]),
    )


class UsageError(LapwingError, ValueError):
    """Words on the command line that make no sense."""


def parse(
    what: Callable[..., T],
    words: Sequence[str],
    prog: str,
    about: str | None = None,
    default: Any = None,
) -> T:
    """Calls `what`, a function or a dataclass, with the options in `words`. `default` is an instance of the dataclass
    from which the options that are not given are taken.

    >>> def greet(name: str = "you"):
    ...     return f"hello {name}"
    >>> parse(greet, ["--name", "bird"], prog="greet")
    'hello bird'
    >>> parse(greet, ["--nam", "bird"], prog="greet")
    Traceback (most recent call last):
    lapwing._commands.parse.UsageError: unrecognized options: --nam, bird; perhaps you meant: --name STR ...
    """

    @functools.wraps(what)
    def bind(*positional: Any, **named: Any) -> Callable[[], T]:
        return functools.partial(what, *positional, **named)

    bound: Any = _listened(
        what if isinstance(what, type) else bind,
        words,
        prog,
        description=about,
        **({} if default is None else {"default": default}),
    )
    return bound if isinstance(what, type) else bound()


def parse_known(what: type[T], words: Sequence[str], prog: str) -> tuple[T, list[str]]:
    """An instance of the dataclass from the options that it knows, and the words that it does not know.

    >>> from dataclasses import make_dataclass
    >>> parse_known(make_dataclass("Options", [("name", str)]), ["--name", "bird", "--size", "3"], prog="greet")
    (Options(name='bird'), ['--size', '3'])
    """
    return _listened(what, words, prog, return_unknown_args=True)


def _listened(what: Any, words: Sequence[str], prog: str, **options: Any) -> Any:
    """What tyro makes of the words; what it says about wrong ones becomes an error of one sentence."""
    said = io.StringIO()
    try:
        # Only the parsing is listened to, not the call.
        with contextlib.redirect_stderr(said), _STRATEGIES:
            return tyro.cli(what, args=words, prog=prog, config=(tyro.conf.FlagCreatePairsOff,), **options)
    except SystemExit as end:
        if not end.code:
            raise
        raise UsageError(f"{_sentence(said.getvalue())}; `{prog} --help` tells more") from None


def _sentence(box: str) -> str:
    """What tyro says in a box of several parts, as one sentence: the error, and what may have been meant."""
    parts = [" ".join(part.split()) for part in re.split(r"[─-]{3,}", _FRAME.sub(" ", box))]
    error, *more = parts[1:] or parts  # The first is the title of the box.
    meant = [part for part in more if part.startswith("Perhaps")]
    said = "; ".join(part[:1].lower() + part[1:] for part in [error.rstrip("."), *meant])
    for words, plainer in _PLAINER.items():
        said = re.sub(words, plainer, said)
    return said
