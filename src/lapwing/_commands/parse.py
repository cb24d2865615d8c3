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

SHORT_OPTIONS = {"--lr": "--learning-rate"}
RENAMED_OPTIONS = {"--rate": "--learning-rate", "--results": "--out", "--folder": "--out"}

_FRAME = re.compile("[│╭╮╰╯]|\x1b\\[[0-9;]*m")

# Messages of the parser, and a plainer form of each.
_PLAINER = {
    r"^error parsing config[\w.]*: ": "",
    r"^error parsing (\S+): invalid literal for int\(\) with base 10: (.+)": r"\1 takes an integer, not \2",
    r"^error parsing (\S+): could not convert string to float: (.+)": r"\1 takes a number, not \2",
    r"^error parsing (\S+): no type matching \{None\}\|INT could .* \[(.+?)\]\..*": r"\1 takes an integer, not \2",
    r"^error parsing (\S+): no type matching \{None\}\|FLOAT could .* \[(.+?)\]\..*": r"\1 takes a number, not \2",
    r"^error parsing (\S+): takes a folder here": r"\1 takes a folder here",
    r"^missing value for argument '(\S+)'\. Expected 1 values": r"\1 needs a value",
}

# An option that is off by default. Others, and those of a config, come as a pair: --shuffle, --no-shuffle.
Flag = tyro.conf.FlagCreatePairsOff[bool]

RunName = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="RUN", help="name of a run, a part of one, a path, or latest"),
]
RUNS = Path("runs")


def _folder(words: Sequence[str]) -> Path:
    if "://" in words[0]:
        raise ValueError(
            f"takes a folder here, not {words[0]!r}; `lapwing pull {words[0]}` brings runs into one"
        )
    return Path(words[0])


RunsFolder = Annotated[
    Path,
    tyro.conf.arg(name="runs", metavar="DIR", help="folder of the runs"),
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="DIR",
        instance_from_str=_folder,
        is_instance=lambda instance: isinstance(instance, Path),
        str_from_instance=lambda instance: [str(instance)],
    ),
]
Json = Annotated[Flag, tyro.conf.arg(name="json", help="print JSON instead of a table")]


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
    """An invalid command line."""


def parse(
    what: Callable[..., T],
    words: Sequence[str],
    prog: str,
    about: str | None = None,
    default: Any = None,
) -> T:
    """Calls `what`, a function or a dataclass, with the options in `words`.

    **Arguments:** `default` is an instance of the dataclass, with the values of the options that are not given.

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

    bound: Any = _parsed(
        what if isinstance(what, type) else bind,
        words,
        prog,
        description=about,
        **({} if default is None else {"default": default}),
    )
    return bound if isinstance(what, type) else bound()


def sentence(about: str) -> str:
    """A line of a table as the description of a command.

    >>> sentence("pause a run after its step")
    'Pause a run after its step.'
    """
    return f"{about[:1].upper()}{about[1:]}."


def parse_known(
    what: type[T], words: Sequence[str], prog: str, about: str | None = None
) -> tuple[T, list[str]]:
    """An instance of the dataclass from the options that it knows, and the words that it does not know.

    >>> from dataclasses import make_dataclass
    >>> parse_known(make_dataclass("Options", [("name", str)]), ["--name", "bird", "--size", "3"], prog="greet")
    (Options(name='bird'), ['--size', '3'])
    """
    return _parsed(what, words, prog, description=about, return_unknown_args=True)


def _parsed(what: Any, words: Sequence[str], prog: str, **options: Any) -> Any:
    """The result of tyro; its error messages become errors of one sentence."""
    words = list(map(_long_option, words))
    printed = io.StringIO()
    try:
        # Only the parsing is redirected, not the call.
        with contextlib.redirect_stderr(printed), _STRATEGIES:
            return tyro.cli(what, args=words, prog=prog, **options)
    except SystemExit as end:
        if not end.code:
            raise
        sentence = _sentence(printed.getvalue())
        raise UsageError(_renamed(words, sentence) or f"{sentence}; see `{prog} --help`") from None


def _long_option(word: str) -> str:
    """The word with the full name of an option.

    >>> _long_option("--lr=0.1"), _long_option("lr")
    ('--learning-rate=0.1', 'lr')
    """
    name, equals, value = word.partition("=")
    return SHORT_OPTIONS.get(name, name) + equals + value


def _renamed(words: Sequence[str], sentence: str) -> str | None:
    """The new name of an option that this command does not know; another command may still have one of that name.

    >>> _renamed(["--rate=1"], "unrecognized options: --rate=1")
    '--rate is now called --learning-rate; write --learning-rate or --lr'
    """
    found = re.match(r"unrecognized options: ([^;]*)", sentence)
    unknown = "" if found is None else found[1]
    for word in words:
        name = word.partition("=")[0]
        if (new := RENAMED_OPTIONS.get(name)) and re.search(rf"{name}(?![\w-])", unknown):
            short = [each for each, long in SHORT_OPTIONS.items() if long == new]
            return f"{name} is now called {new}; write {' or '.join([new, *short])}"
    return None


def _sentence(box: str) -> str:
    """What tyro prints in a box of several parts, as one sentence: the error, and what was probably meant."""
    parts = [" ".join(part.split()) for part in re.split(r"[─-]{3,}", _FRAME.sub(" ", box))]
    error, *more = parts[1:] or parts  # The first is the title of the box.
    meant = [part for part in more if part.startswith("Perhaps")]
    sentence = "; ".join(part[:1].lower() + part[1:] for part in [error.rstrip("."), *meant])
    for words, plainer in _PLAINER.items():
        sentence = re.sub(words, plainer, sentence)
    return sentence
