"""The commands that a run takes, as one table.

Everything that knows a command reads this table: the command line makes its subcommands from it, the board's page its
buttons, and `Run.post` and the inbox check what is sent by it. A new command is one entry here, and one action each in
`lapwing.train._control` and `_loop`. What `set` can change differs from run to run: a run announces its controls in its
folder (`RunWriter.announce_controls`), and `CONTROLS` holds the ranges of those that every run has.
"""

import math
import reprlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from lapwing.core import LapwingError, closest, suggestion


class CommandError(LapwingError, ValueError):
    """A command that does not exist, or arguments that it does not take."""


@dataclass(frozen=True)
class Kind:
    """The values that an argument can have: numbers or text of a range, or one of some words."""

    expected: str
    type: type
    holds: Callable[[Any], bool]
    words: tuple[str, ...] = ()

    def convert(self, name: str, text: str) -> Any:
        """The value that a person has typed."""
        if text in self.words:
            return text
        try:
            return self.type(text)
        except ValueError:
            raise self._error(name, text) from None

    def check(self, name: str, value: Any) -> Any:
        """The value, if it is in the range."""
        if isinstance(value, str) and value in self.words:
            return value
        if self.type is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        types = (int, float) if self.type is float else self.type
        if isinstance(value, bool) or not isinstance(value, types):
            raise self._error(name, value)
        if isinstance(value, int) and abs(value) > _MOST_INT:
            raise CommandError(f"{name} should be {self.expected}, but has {len(str(abs(value)))} digits")
        if not self.holds(cast := self.type(value)):  # Judged as it is used, not as it was written.
            raise self._error(name, value)
        return cast

    def _error(self, name: str, value: Any) -> CommandError:
        return CommandError(f"{name} should be {self.expected}, but is {_SHORT.repr(value)}")


_MOST_INT = 2**63 - 1  # What the widest array holds.
_SHORT = reprlib.Repr()
_SHORT.maxstring = 200
LONGEST_TEXT = 10_000
POSITIVE = Kind("a positive number", float, lambda value: 0 < value < math.inf)
POSITIVE_OR_INF = Kind("a positive number, or inf for none", float, lambda value: value > 0)
NUMBER = Kind("a finite number", float, math.isfinite)
AT_LEAST_0 = Kind("a number of at least 0", float, lambda value: 0 <= value < math.inf)
COUNT = Kind("an integer of at least 0", int, lambda value: value >= 0)
STEP = Kind("best or the step of a checkpoint", int, lambda value: value >= 0, words=("best",))
TEXT = Kind(f"a text of at most {LONGEST_TEXT} characters", str, lambda value: len(value) <= LONGEST_TEXT)


@dataclass(frozen=True)
class Argument:
    """An argument of a command, or a control that `set` changes; one without a default is required."""

    name: str
    kind: Kind
    help: str
    metavar: str = ""
    default: Any = None
    aliases: tuple[str, ...] = ()
    several_words: bool = False

    def to_json(self) -> dict[str, Any]:
        kind = {"expected": self.kind.expected, "type": self.kind.type.__name__}
        return {"name": self.name, "help": self.help, "default": self.default, **kind}


@dataclass(frozen=True)
class CommandSpec:
    """What a command does and takes.

    `sets_controls`: its arguments are the controls of the run. `states`: the run states in which it makes sense; None
    for a command that needs no running process, and that `Run` has as a method. `confirm`: the page asks again.

    >>> from lapwing.journal import COMMANDS
    >>> COMMANDS["pause"].help, COMMANDS["resume"].aliases
    ('pause a run after its step, with a checkpoint', ('go on', 'go'))
    """

    help: str
    arguments: tuple[Argument, ...] = ()
    sets_controls: bool = False
    states: tuple[str, ...] | None = ("running", "paused")
    confirm: bool = False
    aliases: tuple[str, ...] = ()


CONTROLS = (
    Argument(
        "learning_rate", POSITIVE, "learning rate, before the schedule's factor", aliases=("lr", "rate")
    ),
    Argument("clip", POSITIVE_OR_INF, "largest norm of a gradient"),
    Argument("weight_decay", AT_LEAST_0, "weight decay, as in AdamW"),
    Argument(
        "update_scale", POSITIVE, "factor of all updates, where the optimizer has its own learning rate"
    ),
)

COMMANDS = {
    "set": CommandSpec("change the learning rate or another control of a run", sets_controls=True),
    "pause": CommandSpec("pause a run after its step, with a checkpoint", states=("running",)),
    "resume": CommandSpec("continue a paused run", states=("paused",), aliases=("go on", "go")),
    "checkpoint": CommandSpec("write a checkpoint now"),
    "rollback": CommandSpec(
        "return to the best parameters, or to a checkpoint, and continue with new data",
        (Argument("to", STEP, "best, or the step of a checkpoint", "best|STEP", "best"),),
        confirm=True,
    ),
    "laps": CommandSpec(
        "change how often the phases of a step are timed",
        (Argument("every", COUNT, "time one call in K; 0 times none", "K"),),
    ),
    "stop": CommandSpec("end a run after its step, with a checkpoint", confirm=True),
    "note": CommandSpec(
        "add a note to the journal of a run",
        (Argument("text", TEXT, "the note", "TEXT", several_words=True),),
        states=None,
    ),
}
"""The commands to a run, by name. The command line, the inbox of a run, training and the board read this one table."""


def find_command(name: str) -> tuple[str, CommandSpec]:
    """The canonical name of a command, and its entry.

    >>> find_command("go on")[0]
    'resume'
    >>> find_command("stopp")
    Traceback (most recent call last):
    lapwing.journal._commands.CommandError: 'stopp' is not a command; did you mean stop?
    """
    for known, spec in COMMANDS.items():
        if name == known or name in spec.aliases:
            return known, spec
    raise CommandError(f"{name!r} is not a command; {suggestion(name, COMMANDS)}")


def convert_arguments(command: str, texts: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a person has typed, as numbers; values that are not text stay as they are.

    >>> convert_arguments("set", {"lr": "0.01"}), convert_arguments("rollback", {"to": "120"})
    ({'lr': 0.01}, {'to': 120})
    """
    _, spec = find_command(command)
    known = {argument.name: argument for argument in spec.arguments}
    converted = dict(texts)
    for name, text in texts.items():
        argument = find_control(name) if spec.sets_controls else known.get(name)
        if argument and isinstance(text, str):
            converted[name] = argument.kind.convert(name, text)
    return converted


def check_command(
    command: str,
    arguments: Mapping[str, Any],
    controls: "Collection[str] | Mapping[str, Argument] | None" = None,
) -> tuple[str, dict[str, Any]]:
    """The canonical names of a command and its arguments, with defaults, if everything is in its range.

    **Arguments:** `controls` are the names that the run lets `set` change, with their ranges if it has announced them;
    None if they are not known.

    >>> check_command("set", {"lr": 0.01}), check_command("rollback", {})
    (('set', {'learning_rate': 0.01}), ('rollback', {'to': 'best'}))
    >>> check_command("set", {"clip": 0})
    Traceback (most recent call last):
    lapwing.journal._commands.CommandError: clip should be a positive number, or inf for none, but is 0
    """
    name, spec = find_command(command)
    return name, _checked_controls(arguments, controls) if spec.sets_controls else _checked(name, arguments)


def command_table() -> list[dict[str, Any]]:
    """The table as plain data, for the page of the board.

    >>> [(entry["name"], entry["confirm"]) for entry in command_table()][:2]
    [('set', False), ('pause', False)]
    """
    shown = ("help", "sets_controls", "states", "confirm")
    return [
        {
            "name": name,
            "arguments": [argument.to_json() for argument in spec.arguments],
            **{field: getattr(spec, field) for field in shown},
        }
        for name, spec in COMMANDS.items()
    ]


def control_table(
    controls: Mapping[str, float], arguments: Mapping[str, Argument] | None = None
) -> list[dict[str, Any]]:
    """What a run lets `set` change (`Run.controls`, `Run.control_arguments`), with values, as plain data.

    >>> [(entry["value"], entry["help"], entry["expected"]) for entry in control_table({"l1": 0.5})]
    [(0.5, 'weight of a penalty, or hyperparameter of the optimizer', 'a finite number')]
    """
    known = arguments or {}
    return [
        {**(known.get(name) or find_control(name)).to_json(), "value": value}
        for name, value in controls.items()
    ]


def find_control(name: str) -> Argument:
    """A control by its name or alias; any other name is a run's own."""
    known = (control for control in CONTROLS if name == control.name or name in control.aliases)
    return next(known, Argument(name, NUMBER, "weight of a penalty, or hyperparameter of the optimizer"))


def _checked_controls(
    arguments: Mapping[str, Any], controls: Collection[str] | Mapping[str, Argument] | None
) -> dict[str, float]:
    if not arguments:
        raise CommandError("set needs a name and a value, such as learning_rate=0.01")
    checked = {}
    for given, value in arguments.items():
        control = find_control(given)
        if controls is not None and control.name not in controls:
            raise CommandError(f"{given!r} cannot be set{_reason(given, control.name, controls)}")
        if isinstance(controls, Mapping):
            control = controls[control.name]
        checked[control.name] = control.kind.check(control.name, value)
    return checked


def _reason(given: str, name: str, controls: Collection[str]) -> str:
    there = f"there are {', '.join(controls)}" if controls else "this run has no controls"
    if name == "learning_rate" and "update_scale" in controls:
        return (
            f": the optimizer of this run has its own; {there}. To set it, give the task a function of the learning "
            "rate, such as optimizer=optax.adam"
        )
    guess = closest(given, controls)
    return f"; did you mean {guess}? {there.capitalize()}" if guess else f"; {there}"


def _checked(command: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    known = {argument.name: argument for argument in COMMANDS[command].arguments}
    if unknown := [name for name in arguments if name not in known]:
        takes = " and ".join(known) or "no arguments"
        raise CommandError(f"{command} takes {takes}, not {', '.join(map(str, unknown))}")
    given = {name: arguments.get(name, argument.default) for name, argument in known.items()}
    return {name: known[name].kind.check(name, value) for name, value in given.items()}
