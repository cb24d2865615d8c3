"""The controls that a loop of your own registers: values that `lapwing set` and the board change while it runs.

A run announces them in its folder, with their ranges, so a value out of range is refused before it is sent.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from ._commands import Argument, Kind, find_control
from ._errors import JournalError
from ._tail import Record

Announce = Callable[[Mapping[str, float], Mapping[str, Any]], None]


class Controls:
    """The present values by name. What a person has set before the run was reopened still holds."""

    def __init__(self, events: list[Record], announce: Announce):
        self._announce = announce
        self._was_set: dict[str, Any] = {}
        for event in events:
            match event:
                case {"event": "applied", "command": "set", "arguments": dict(arguments)}:
                    self._was_set |= arguments
        self._values: dict[str, float] = {}
        self._about: dict[str, dict[str, Any]] = {}

    def value(self, name: str, default: float, low: float, high: float, about: str) -> Any:
        """The present value; the first call registers the control."""
        name = find_control(name).name
        if name not in self._values:
            self._register(name, default, low, high, about)
        return self._values[name]

    def set(self, wanted: Mapping[str, float]) -> str:
        """Changes values; returns what changed, in words."""
        if unknown := [name for name in wanted if name not in self._values]:
            raise JournalError(
                f"this loop has no control {unknown[0]!r}; it has {', '.join(self._values) or 'none'}"
            )
        changes = [f"{name} {self._values[name]:g} → {value:g}" for name, value in wanted.items()]
        self._values.update({name: type(self._values[name])(value) for name, value in wanted.items()})
        return ", ".join(changes)

    def _register(self, name: str, default: float, low: float, high: float, about: str) -> None:
        if isinstance(default, bool) or not isinstance(default, int | float):
            raise JournalError(f"the control {name!r} is {default!r}, but a control is a number")
        limits = {"low": low, "high": high} if (low, high) != (-math.inf, math.inf) else {}
        announced = {"type": type(default).__name__, "help": about, **limits}
        kind = announced_control(name, {name: announced}).kind
        if not kind.holds(default):
            raise JournalError(f"the control {name!r} should be {kind.expected}, but is {default!r}")
        value = self._was_set.get(name, default)
        self._values[name] = type(default)(value if kind.holds(value) else default)
        self._about[name] = announced
        self._announce(self._values, self._about)


def announced_control(name: str, about: Mapping[str, Any]) -> Argument:
    """A control as a run has announced it. A known one (`learning_rate`) keeps its range unless another is given.

    >>> announced_control("heat", {"heat": {"type": "float", "low": 0.0, "high": 2.0, "help": ""}}).kind.expected
    'a number from 0 to 2'
    """
    match about.get(name):
        case {"type": "int" | "float" as word, "help": str(text), **limits}:
            known = find_control(name)
            kind = known.kind if known.help != _PENALTY and not limits else _between(word, **limits)
            return Argument(
                name, kind, text or (known.help if known.help != _PENALTY else "a control of this loop")
            )
    return find_control(name)


_PENALTY = find_control("").help


def _between(word: str, low: Any = -math.inf, high: Any = math.inf, **_: Any) -> Kind:
    noun = "an integer" if word == "int" else "a number"
    low, high = (
        x if isinstance(x, int | float) else fallback for x, fallback in ((low, -math.inf), (high, math.inf))
    )
    if math.isinf(low) and math.isinf(high):
        expected = noun
    elif math.isinf(high):
        expected = f"{noun} of at least {low:g}"
    elif math.isinf(low):
        expected = f"{noun} of at most {high:g}"
    else:
        expected = f"{noun} from {low:g} to {high:g}"
    return Kind(
        expected,
        int if word == "int" else float,
        lambda value: low <= value <= high and abs(value) < math.inf,
    )
