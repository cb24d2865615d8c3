"""`lapwing set`, `pause`, `go on`, `stop`, `checkpoint`, `rollback`, `laps`: commands to a run while it runs.

The command is left in the inbox of the run folder, and the run's answer is waited for. A run looks between two calls
of the device, so that a step of a minute has to be waited for, too; what was asked for is not lost meanwhile.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from lapwing.journal import Run, find_run

from .output import print_json
from .parse import RUNS, Json, RunName, RunsFolder, UsageError, parse

_STATUS = {"applied": 0, "refused": 1}
_NO_ANSWER = 3

Assignments = Annotated[
    tuple[str, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="NAME=VALUE", help="such as lr=0.01 clip=0.5"),
]
Wait = Annotated[float, tyro.conf.arg(metavar="SECONDS", help="how long to wait for the answer")]
Place = Annotated[
    str, tyro.conf.Positional, tyro.conf.arg(metavar="best|STEP", help="best, or the step of a checkpoint")
]
Every = Annotated[
    int, tyro.conf.Positional, tyro.conf.arg(metavar="K", help="time one in so many calls; 0: none")
]


def set_(
    run: RunName,
    assignments: Assignments,
    *,
    wait: Wait = 10.0,
    runs_dir: RunsFolder = RUNS,
    as_json: Json = False,
) -> int:
    """Changes the learning rate (lr), clip, weight_decay or the weight of a penalty of a running run."""
    if not assignments:
        raise UsageError("nothing to set; write NAME=VALUE, such as lr=0.01")
    values = dict(_assignment(word) for word in assignments)
    return _ask(run, runs_dir, "set", values, wait, as_json)


def pause(run: RunName, *, wait: Wait = 10.0, runs_dir: RunsFolder = RUNS, as_json: Json = False) -> int:
    """Lets a run wait after its step, with a checkpoint, until `lapwing go on RUN`."""
    return _ask(run, runs_dir, "pause", {}, wait, as_json)


def go(words: Sequence[str]) -> int:
    """`lapwing go on RUN`: the little word may be left out."""
    rest = words[1:] if words[:1] == ["on"] else words
    return parse(_go_on, rest, prog="lapwing go on")


def _go_on(run: RunName, *, wait: Wait = 10.0, runs_dir: RunsFolder = RUNS, as_json: Json = False) -> int:
    """Lets a paused run go on."""
    return _ask(run, runs_dir, "go on", {}, wait, as_json)


def stop(run: RunName, *, wait: Wait = 10.0, runs_dir: RunsFolder = RUNS, as_json: Json = False) -> int:
    """Lets a run finish its step, write a checkpoint and end. `lapwing resume RUN` goes on with it."""
    return _ask(run, runs_dir, "stop", {}, wait, as_json)


def checkpoint(run: RunName, *, wait: Wait = 10.0, runs_dir: RunsFolder = RUNS, as_json: Json = False) -> int:
    """Lets a run write a checkpoint now."""
    return _ask(run, runs_dir, "checkpoint", {}, wait, as_json)


def rollback(
    run: RunName, to: Place = "best", *, wait: Wait = 10.0, runs_dir: RunsFolder = RUNS, as_json: Json = False
) -> int:
    """Takes a run back to its best parameters, or to those of a checkpoint, with other data from there on."""
    if to != "best" and not to.isdecimal():
        raise UsageError(f"rollback goes to best or to the step of a checkpoint, not to {to!r}")
    return _ask(run, runs_dir, "rollback", {"to": to if to == "best" else int(to)}, wait, as_json)


def laps(
    run: RunName, every: Every, *, wait: Wait = 10.0, runs_dir: RunsFolder = RUNS, as_json: Json = False
) -> int:
    """Changes how often a run times its phases."""
    return _ask(run, runs_dir, "laps", {"every": every}, wait, as_json)


def _assignment(word: str) -> tuple[str, float]:
    name, equals, value = word.partition("=")
    if not name or not equals:
        raise UsageError(f"{word!r} sets nothing; write NAME=VALUE, such as lr=0.01")
    try:
        return name, float(value)
    except ValueError:
        raise UsageError(f"{name} takes a number, not {value!r}") from None


def _ask(
    name: str, runs_dir: Any, command: str, arguments: dict[str, Any], wait: float, as_json: bool
) -> int:
    run = Run.open(find_run(name, runs_dir))
    answer = run.answer(run.post(command, **arguments), timeout_s=wait)
    if as_json:
        print_json(answer)
    elif answer is None:
        print(
            f"{run.name} has not answered within {wait:g} s; it will when its step is over (`lapwing show`)"
        )
    else:
        print(f"{run.name}: {command} {answer['event']}: {answer.get('outcome') or answer.get('reason')}")
    return _NO_ANSWER if answer is None else _STATUS[answer["event"]]
