"""Commands from the page to a run, through the same inbox as `lapwing set`, `pause`, `stop` and the others.

What a command means, and whether it makes sense, the run decides; its answer is an event in its journal. Here is only
seen to it that the message is one of those that the page can send.
"""

from collections.abc import Mapping
from typing import Any

from lapwing.core import LapwingError
from lapwing.journal import Run

COMMANDS = ("set", "pause", "go on", "stop", "checkpoint", "rollback", "laps")
LONGEST_NOTE = 10_000


class RequestError(LapwingError, ValueError):
    """A message that makes no sense."""


def steer(run: Run, message: Mapping[str, Any]) -> str | None:
    """Leaves a command for a run and returns its id, by which it is answered; a note needs no answer.

    >>> import tempfile
    >>> run = Run.create("demo", runs_dir=tempfile.mkdtemp())
    >>> given = steer(run, {"command": "set", "arguments": {"lr": "0.01"}})
    >>> [(command.name, command.arguments, command.id == given) for command in run.poll()]
    [('set', {'lr': 0.01}, True)]
    """
    command, arguments = message.get("command"), message.get("arguments", {})
    if not isinstance(arguments, dict):
        raise RequestError(f"the arguments of a command should be a dict, but are {arguments!r}")
    if command == "note":
        run.note(_note(arguments))
        return None
    if command not in COMMANDS:
        raise RequestError(f"{command!r} is not a command; there are {', '.join(COMMANDS)} and note")
    return run.post(str(command), **_plain(str(command), arguments))


def _note(arguments: Mapping[str, Any]) -> str:
    text = arguments.get("text")
    if not isinstance(text, str) or len(text) > LONGEST_NOTE:
        raise RequestError(f"a note is a text of at most {LONGEST_NOTE} letters")
    return text


def _plain(command: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in the fields of a page is text; the run wants numbers."""
    match command:
        case "set":
            return {name: _number(name, value) for name, value in arguments.items()}
        case "rollback":
            to = arguments.get("to", "best")
            return {"to": to if to == "best" else _whole("rollback", to)}
        case "laps":
            return {"every": _whole("laps", arguments.get("every"))}
        case _:
            return {}


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise RequestError(f"{name} takes a number, not {value!r}") from None


def _whole(name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise RequestError(f"{name} takes a whole number, not {value!r}") from None
