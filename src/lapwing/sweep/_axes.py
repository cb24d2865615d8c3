"""The axes of a sweep: `model.latents=4..8`, `task=copy,sort` or `learning_rate=1e-4..1e-2:log`, parsed by option type.

The text is kept as it was written: it is what sweep.json holds, and reading it again gives the same axis. A range of
whole numbers is a list of values; a range of others, or with `:log`, has to be drawn from, which only a random search
does.
"""

import dataclasses
import math
import random
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lapwing.core import LapwingError, suggestion

_LOG = ":log"
# Enough to tell two draws apart, and short in the name of a folder.
_DIGITS = 4


class SweepError(LapwingError, ValueError):
    """What cannot be swept, or not like this."""


@dataclass(frozen=True)
class Axis:
    """One option and its values: listed, or drawn from `low` to `high`."""

    path: str
    values: Sequence[Any] = ()
    low: float = math.nan
    high: float = math.nan
    log: bool = False
    whole: bool = False

    @property
    def is_listed(self) -> bool:
        return len(self.values) > 0

    def draw(self, chance: random.Random) -> Any:
        """A value at random.

        >>> Axis("learning_rate", low=1e-4, high=1e-2, log=True).draw(random.Random(0))
        0.004885
        """
        if self.is_listed:
            return chance.choice(self.values)
        if self.log:
            drawn = math.exp(chance.uniform(math.log(self.low), math.log(self.high)))
        else:
            drawn = chance.uniform(self.low, self.high)
        return round(drawn) if self.whole else float(f"{drawn:.{_DIGITS}g}")


def axis_of(text: str, config: type) -> Axis:
    """The axis that a text describes, for the options of a config dataclass.

    >>> from lapwing.train import FitConfig
    >>> list(axis_of("steps=4..6", FitConfig).values), axis_of("schedule.kind=cosine,points", FitConfig).values
    ([4, 5, 6], ('cosine', 'points'))
    >>> axis_of("schedule.knd=cosine", FitConfig)
    Traceback (most recent call last):
    lapwing.sweep._axes.SweepError: 'schedule.knd' is not an option; did you mean schedule.kind?
    """
    name, equals, told = text.partition("=")
    if not (name and equals and told):
        raise SweepError(
            f"{text!r} is no axis; write OPTION=VALUES, such as learning_rate=0.1,0.01 or width=4..8"
        )
    path = name.replace("-", "_")
    if path == "seed":
        raise SweepError(
            "seed is not swept over like other options; `--seeds 5` runs every point with 5 seeds"
        )
    hint = _type_of(path, config)
    if ".." in told and _without_none(hint) in (int, float):
        return _range(path, told, _without_none(hint))
    if told.endswith(_LOG):
        raise SweepError(f"{text!r} is a list, and {_LOG} is for a range such as {path}=1e-4..1e-2{_LOG}")
    values = tuple(_value(path, word, hint) for word in told.split(","))
    if len(set(values)) < len(values):
        raise SweepError(f"{text!r} names a value twice; name each once")
    return Axis(path, values)


def _range(path: str, told: str, kind: type) -> Axis:
    log = told.endswith(_LOG)
    ends = told.removesuffix(_LOG).split("..")
    if len(ends) != 2:
        raise SweepError(f"{path}={told} should be a range LOW..HIGH, or a list, such as {path}=A,B")
    low, high = (_value(path, word, kind) for word in ends)
    if not low < high < math.inf or (log and low <= 0):
        least = ", both above 0" if log else ""
        raise SweepError(f"{path}={told} should go from a smaller to a larger number{least}")
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
    plain = _without_none(hint)
    if plain is not hint and word == "none":
        return None
    if typing.get_origin(plain) is Literal:
        allowed = typing.get_args(plain)
        if word not in allowed:
            raise SweepError(
                f"{path} is one of {', '.join(allowed)}, not {word!r}; {suggestion(word, allowed)}"
            )
        return word
    if plain not in _READERS:
        raise SweepError(f"{path} cannot be swept over: only numbers, words and true or false can")
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


def _without_none(hint: Any) -> Any:
    """The type of an option that may be `none` too."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint
    others = [each for each in typing.get_args(hint) if each is not type(None)]
    return others[0] if len(others) == 1 else hint
