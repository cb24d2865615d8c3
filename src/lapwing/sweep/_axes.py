"""The axes of a sweep: `model.latents=4..8`, `task=copy,sort` or `lr=1e-4..1e-2:log`, parsed by the option's type.

The text is kept as it was written: sweep.json holds it, and parsing it again gives the same axis. A range of whole
numbers is a list of values; other ranges, and those with `:log`, can only be sampled.
"""

import dataclasses
import enum
import math
import random
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lapwing.core import LapwingError, suggestion

_LOG = ":log"
RENAMED = {"rate": "learning_rate"}
"""Options that have another name in older sweeps."""
_SHORT_FORMS = {"lr": "learning_rate", **RENAMED}
# Enough to distinguish two draws, and short in the name of a folder.
_DIGITS = 4


class SweepError(LapwingError, ValueError):
    """An invalid sweep."""


@dataclass(frozen=True)
class Axis:
    """One option and its values: listed, or a range from `low` to `high`. `name` is the option as it was written, if
    that is not its path."""

    path: str
    values: Sequence[Any] = ()
    low: float = math.nan
    high: float = math.nan
    log: bool = False
    whole: bool = False
    name: str = ""

    @property
    def is_listed(self) -> bool:
        return len(self.values) > 0

    def draw(self, chance: random.Random) -> Any:
        """A random value.

        >>> Axis("learning_rate", low=1e-4, high=1e-2, log=True).draw(random.Random(0))
        0.004885
        """
        if self.is_listed:
            return chance.choice(self.values)
        if self.log:
            drawn = math.exp(chance.uniform(math.log(self.low), math.log(self.high)))
        else:
            drawn = chance.uniform(self.low, self.high)
        return self.rounded(drawn)

    def rounded(self, number: float) -> Any:
        """The value of a range that is written for a number in it: whole, or of four digits.

        >>> Axis("learning_rate", low=1e-4, high=1e-2).rounded(0.00123456)
        0.001235
        """
        short = round(number) if self.whole else float(f"{number:.{_DIGITS}g}")
        return min(max(short, self.low), self.high)


def axis_of(text: str, config: type) -> Axis:
    """Parses an axis, for the options of a config dataclass.

    >>> from lapwing.train import FitConfig
    >>> list(axis_of("steps=4..6", FitConfig).values), axis_of("schedule.kind=cosine,points", FitConfig).values
    ([4, 5, 6], ('cosine', 'points'))
    >>> axis_of("schedule.knd=cosine", FitConfig)
    Traceback (most recent call last):
    lapwing.sweep._axes.SweepError: 'schedule.knd' is not an option; did you mean schedule.kind?
    """
    name, equals, listed = text.partition("=")
    if not (name and equals and listed):
        raise SweepError(
            f"{text!r} is not an axis; write OPTION=VALUES, such as learning_rate=0.1,0.01 or width=4..8"
        )
    name = name.replace("-", "_")
    path = _SHORT_FORMS.get(name, name)
    written = "" if path == name else name
    if path == "seed":
        raise SweepError("seed is not an axis; `--seeds 5` runs every point with 5 seeds")
    hint = _type_of(path, config)
    if ".." in listed and _readable(hint) in (int, float):
        return dataclasses.replace(_range(path, listed, _readable(hint)), name=written)
    if listed.endswith(_LOG):
        raise SweepError(f"{text!r} is a list, and {_LOG} is for a range such as {path}=1e-4..1e-2{_LOG}")
    values = tuple(_value(path, word, hint) for word in listed.split(","))
    if len(set(values)) < len(values):
        raise SweepError(f"{text!r} names a value twice; name each once")
    return Axis(path, values, name=written)


def _range(path: str, text: str, kind: type) -> Axis:
    log = text.endswith(_LOG)
    ends = text.removesuffix(_LOG).split("..")
    if len(ends) != 2:
        raise SweepError(f"{path}={text} should be a range LOW..HIGH, or a list, such as {path}=A,B")
    low, high = (_value(path, word, kind) for word in ends)
    if not low < high < math.inf or (log and low <= 0):
        least = ", both above 0" if log else ""
        raise SweepError(f"{path}={text} should go from a smaller to a larger number{least}")
    if kind is int and not log:
        return Axis(path, range(low, high + 1))
    return Axis(path, low=low, high=high, log=log, whole=kind is int)


def _type_of(path: str, config: type) -> Any:
    """The type of an option, by its dotted path into nested dataclasses."""
    options = _options(config)
    if path in options:
        return options[path]
    inside = [name for name in options if name.startswith(f"{path}.")]
    if inside:
        raise SweepError(f"{path!r} is a group of options; name one of {', '.join(inside)}")
    raise SweepError(f"{path!r} is not an option; {suggestion(path, options)}")


def _options(config: type, prefix: str = "") -> dict[str, Any]:
    hints = typing.get_type_hints(config)
    found = {}
    for field in dataclasses.fields(typing.cast(Any, config)):
        hint, path = hints[field.name], prefix + field.name
        is_group = isinstance(hint, type) and dataclasses.is_dataclass(hint)
        found |= _options(hint, f"{path}.") if is_group else {path: hint}
    return found


def _value(path: str, word: str, hint: Any) -> Any:
    plain = _readable(hint)
    if word == "none" and type(None) in typing.get_args(hint):
        return None
    if typing.get_origin(plain) is Literal:
        allowed = {str(value): value for value in typing.get_args(plain)}
        if word not in allowed:
            raise SweepError(
                f"{path} is one of {', '.join(allowed)}, not {word!r}; {suggestion(word, allowed)}"
            )
        return allowed[word]
    if plain not in _READERS:
        is_enum = isinstance(plain, type) and issubclass(plain, enum.Enum)
        instead = f"; write it as Literal{[*plain.__members__]}" if is_enum else ""
        raise SweepError(f"{path} cannot be swept over: only numbers, words, true and false can{instead}")
    expected, read = _READERS[plain]
    try:
        return read(word)
    except (KeyError, ValueError):
        raise SweepError(f"{path} takes {expected}, not {word!r}") from None


_READERS: dict[Any, tuple[str, Any]] = {
    bool: ("true or false", {"true": True, "false": False}.__getitem__),
    int: ("whole numbers", int),
    float: ("numbers", float),
    str: ("words", str),
}


def _readable(hint: Any) -> Any:
    """The part of a union that a word on the command line can give."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint
    parts = [each for each in typing.get_args(hint) if typing.get_origin(each) is Literal or each in _READERS]
    return parts[0] if len(parts) == 1 else hint
