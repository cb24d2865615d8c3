"""The command `lapwing`: a table of subcommands, and what to do when something goes wrong.

Each subcommand is a function in `lapwing._commands`, imported only when it is called. tyro makes the options of a typed
function from its signature; an untyped function gets the words as they are. A new subcommand is one line in
`SUBCOMMANDS` and a function. The commands to a run (`set`, `pause`, ...) come from the journal's table.

A `LapwingError` is a sentence for the user: it is printed alone, and the exit status is 2. Any other exception is a bug
and keeps its traceback, which for one in a file of the user begins there.
"""

import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from lapwing import __version__
from lapwing._commands.examples import asks_for_help, example_of
from lapwing.core import LapwingError, Preempted, printable, suggestion
from lapwing.journal import COMMANDS

INTERRUPTED = 130
PREEMPTED = 143
BROKEN_PIPE = 141
BAD_INPUT = 2


@dataclass(frozen=True)
class Subcommand:
    """Where the function of a subcommand is, and what it does, in one line."""

    function: str
    about: str
    typed: bool = True


SUBCOMMANDS = {
    "list": Subcommand("train:list_experiments", "list the experiments that can be trained"),
    "new": Subcommand("new:new", "write a file with a model of your own, to start from"),
    "train": Subcommand("train:train", "train an experiment, or a file of your own", typed=False),
    "resume": Subcommand("resume:resume", "continue a run that is paused, stopped or killed", typed=False),
    "sweep": Subcommand("sweep:sweep", "train an experiment over a grid of options and seeds", typed=False),
    "runs": Subcommand("runs:list_runs", "list all runs and their states, newest first"),
    "show": Subcommand("runs:show", "show one run: state, numbers, laps and journal"),
    "tag": Subcommand("order:tag", "add tags to a run, or remove them"),
    "rm": Subcommand("order:rm", "delete runs for good"),
    "push": Subcommand("push:push", "upload a run to object storage, or to another disk"),
    "pull": Subcommand("pull:pull", "download runs from where they were uploaded to"),
    "report": Subcommand("report:report", "draw a run, and put everything about it on one page"),
    "export": Subcommand("export:export", "write what a run has learned to a file for other programs"),
    "board": Subcommand(
        "board:board", "serve a live web page of all runs, to watch and to steer them", typed=False
    ),
    "evaluate": Subcommand(
        "evaluate:evaluate", "evaluate what a run has learned, at its best checkpoint", typed=False
    ),
    "think": Subcommand("think:think", "let a thinker answer one problem, and show its steps"),
    "compare": Subcommand(
        "compare:compare", "find the first step at which two runs differ, and what differs"
    ),
    "time": Subcommand("time:time", "run any command and time the lines it prints", typed=False),
    "check": Subcommand("check:check", "look for common mistakes in an experiment", typed=False),
    "explain": Subcommand(
        "explain:explain", "explain how the loops of a function are rewritten", typed=False
    ),
    "bench": Subcommand("bench:bench", "run a benchmark", typed=False),
    "dmm": Subcommand(
        "dmm:dmm", "list, show, run, test, repair or prune dataflow matrix machines", typed=False
    ),
    "info": Subcommand("info:info", "print versions, devices and what is missing, for a report of a problem"),
}
OPTIONS = ("--help", "--version")


def subcommands() -> dict[str, str]:
    """Every subcommand with its line of help; the commands to a run follow `resume`.

    >>> list(subcommands())[:4]
    ['list', 'new', 'train', 'resume']
    """
    table = {name: spec.help for name, spec in COMMANDS.items() if name not in SUBCOMMANDS}
    lines = {name: command.about for name, command in SUBCOMMANDS.items()}
    first = ("list", "new", "train", "resume")
    return {**{name: lines[name] for name in first}, **table, **lines}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # A terminal without µ still shows the rest.
    try:
        try:
            status = _run(words)
        finally:  # The parser of options prints help and exits.
            _show_example(words)
        sys.stdout.flush()
    except Preempted:
        return _fail("preempted", PREEMPTED)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # The reader has exited (`lapwing runs | head`).
        _drop_output()
        return BROKEN_PIPE
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _drop_output()
        return _fail(f"cannot write the output: {error.strerror}", BAD_INPUT)
    except LapwingError as error:
        return _fail(str(error), BAD_INPUT)
    except Exception as error:
        if experiments := sys.modules.get("lapwing.experiments"):  # It may be an error in a file of the user.
            experiments.shorten_traceback(error)
        raise
    return status


def _run(words: list[str]) -> int:
    if not words:
        print(_help(), file=sys.stderr)
        return BAD_INPUT
    name, *rest = _without_alias(words)
    if name in ("-h", "--help", "help"):
        print(_help())
        return 0
    if name == "--version":
        print(f"lapwing {__version__}")
        return 0
    if name in SUBCOMMANDS:
        return _call(name, SUBCOMMANDS[name], rest) or 0
    if name in COMMANDS:
        from lapwing._commands.steer import steer

        return steer(name, rest)
    known = OPTIONS if name.startswith("-") else subcommands()
    return _fail(f"{name!r} is not a command; {suggestion(name, known)}", BAD_INPUT)


def _show_example(words: list[str]) -> None:
    """The help of a command ends with an example."""
    if {"-h", "--help"} & set(words) and asks_for_help(words) and words[0] in subcommands():
        print(f"\nExample: {example_of(words)}")


def _without_alias(words: list[str]) -> list[str]:
    """The words with the name of a command instead of an alias of one or two words (`go on`)."""
    aliases = {alias: name for name, spec in COMMANDS.items() for alias in spec.aliases}
    for count in (2, 1):
        if name := aliases.get(" ".join(words[:count])):
            return [name, *words[count:]]
    return words


def _call(name: str, command: Subcommand, words: list[str]) -> int | None:
    module, function = command.function.split(":")
    action = getattr(importlib.import_module(f"lapwing._commands.{module}"), function)
    if not command.typed:
        return action(words)
    from lapwing._commands.parse import parse

    return parse(action, words, prog=f"lapwing {name}")


def _help() -> str:
    lines = subcommands()
    width = max(map(len, lines))
    return "\n".join(
        [
            "usage: lapwing COMMAND ...",
            "",
            "Faster gradients of loops in JAX, and training runs that can be steered, stopped and resumed.",
            "",
            *(f"  {name:{width}}  {about}" for name, about in lines.items()),
            "",
            "lapwing COMMAND --help shows the options of a command; lapwing --version shows the version.",
        ]
    )


def _drop_output() -> None:
    """Python would raise again when it flushes standard output at the end of the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(sentence: str, status: int) -> int:
    print(f"lapwing: {printable(sentence)}", file=sys.stderr)  # It may quote a file.
    return status
