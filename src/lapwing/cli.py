"""The command `lapwing`: a table of commands and what to do when something goes wrong.

Each command is a function in `lapwing._commands`, imported only when it is called. A typed function has its
options made from its signature by tyro; one that is not gets the words as they are. Adding a command takes a
line in the table and a function.

An exception whose class is Lapwing's own is a sentence for the user: it is printed alone, and the exit status
is 2. Any other exception is a bug and keeps its traceback.
"""

import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from lapwing import __version__
from lapwing.core import suggestion

INTERRUPTED = 130
BROKEN_PIPE = 141
BAD_INPUT = 2


@dataclass(frozen=True)
class Command:
    """Where a command's function is, and what it does, in a line."""

    function: str
    about: str
    typed: bool = True


COMMANDS = {
    "list": Command("train:list_experiments", "the experiments that can be trained"),
    "train": Command("train:train", "train an experiment", typed=False),
    "resume": Command("train:resume", "go on with a run that was stopped or killed", typed=False),
    "set": Command("steer:set_", "change the rate or another control of a running run"),
    "pause": Command("steer:pause", "let a run wait"),
    "go": Command("steer:go", "let a paused run go on: lapwing go on RUN", typed=False),
    "stop": Command("steer:stop", "end a run after its step, with a checkpoint"),
    "checkpoint": Command("steer:checkpoint", "let a run write a checkpoint now"),
    "rollback": Command("steer:rollback", "take a run back to its best parameters, or to a checkpoint"),
    "laps": Command("steer:laps", "change how often a run times its phases"),
    "sweep": Command("sweep:sweep", "train an experiment over a grid of options and seeds", typed=False),
    "runs": Command("runs:list_runs", "all runs, newest first, and what became of them"),
    "show": Command("runs:show", "one run: state, numbers, laps and journal"),
    "report": Command("report:report", "pictures of a run, and everything about it on one page"),
    "board": Command("board:board", "a live web page of all runs, to look at them and to steer them"),
    "evaluate": Command("evaluate:evaluate", "how robust the network of a run is, under a strong attack"),
    "compare": Command("compare:compare", "the step at which two runs part, and what differs between them"),
    "note": Command("runs:note", "add a note to the journal of a run"),
    "time": Command("time:time", "run any command and lap the lines it prints", typed=False),
    "check": Command("check:check", "look for the mistakes that cost others weeks", typed=False),
    "explain": Command("explain:explain", "what the rewriting does to the loops of a function, and why"),
    "bench": Command("bench:bench", "run a benchmark", typed=False),
    "dmm": Command("dmm:dmm", "show, run or prune a dataflow matrix machine", typed=False),
}


OPTIONS = ("--help", "--version")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # A terminal that knows no µ still shows the rest.
    try:
        status = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # The reader has gone (`lapwing runs | head`).
        _drop_output()
        return BROKEN_PIPE
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _drop_output()
        return _fail(f"cannot write the output: {error.strerror}", BAD_INPUT)
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "lapwing":
            raise
        return _fail(str(error), BAD_INPUT)
    return status


def _run(words: list[str]) -> int:
    if not words:
        print(_help(), file=sys.stderr)
        return BAD_INPUT
    name, *rest = words
    if name in ("-h", "--help", "help"):
        print(_help())
        return 0
    if name == "--version":
        print(f"lapwing {__version__}")
        return 0
    if name not in COMMANDS:
        known = OPTIONS if name.startswith("-") else COMMANDS
        return _fail(f"{name!r} is not a command; {suggestion(name, known)}", BAD_INPUT)
    return _call(name, COMMANDS[name], rest) or 0


def _call(name: str, command: Command, words: list[str]) -> int | None:
    module, function = command.function.split(":")
    action = getattr(importlib.import_module(f"lapwing._commands.{module}"), function)
    if not command.typed:
        return action(words)
    from lapwing._commands.parse import parse

    return parse(action, words, prog=f"lapwing {name}")


def _help() -> str:
    width = max(map(len, COMMANDS))
    return "\n".join(
        [
            "usage: lapwing COMMAND ...",
            "",
            "Trains machines that loop: fast, provably the same computation, and steerable while they run.",
            "",
            *(f"  {name:{width}}  {command.about}" for name, command in COMMANDS.items()),
            "",
            "lapwing COMMAND --help tells more; lapwing --version tells the version.",
        ]
    )


def _drop_output() -> None:
    """What Python still holds for standard output would raise again at the end of the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(sentence: str, status: int) -> int:
    print(f"lapwing: {sentence}", file=sys.stderr)
    return status
