r"""JSON that holds every float and is valid for other readers.

JSON has no numbers that are not finite, and Python's own `NaN` breaks strict parsers. Here they are written as the
strings "NaN", "Infinity" and "-Infinity" (as in protobuf's JSON), and read back as floats. A text that is one of these
three words is written with a backslash in front:

>>> encode({"loss": float("nan"), "said": "NaN"})
'{"loss": "NaN", "said": "\\\\NaN"}'
>>> decode(encode({"loss": float("nan"), "said": "NaN"}))
{'loss': nan, 'said': 'NaN'}
"""

import dataclasses
import enum
import json
import math
import re
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import PurePath
from typing import Any

from lapwing.core import parse_json

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_ESCAPED = re.compile(r"\\*(NaN|-?Infinity)")
_DIGITS = {"float32": "%.9g", "int32": "%d", "int64": "%d"}
_to_line: Callable[[Any], str] = json.JSONEncoder(allow_nan=False).encode


def encode(value: Any) -> str:
    """One line of JSON. Dataclasses, paths, enums and arrays (anything with `tolist()`) become plain data.

    >>> encode({"learning_rate": 0.5, "shape": (2, 3)})
    '{"learning_rate": 0.5, "shape": [2, 3]}'
    """
    return _to_line(plain(value))


def encode_numbers(record: Mapping[str, Any]) -> str:
    """The same for a flat record of numbers, as a training step writes it, several times faster."""
    if all(type(value) is float or type(value) is int for value in record.values()):
        try:
            return _to_line(record)
        except ValueError:
            pass  # Some are not finite: the slower path below.
    return encode({key: _number(key, value) for key, value in record.items()})


def encode_columns(columns: Mapping[str, Any], **same: float) -> list[str]:
    """One line for each row of columns of numbers (lists or arrays of one length), many times faster than row by row;
    `same` are numbers that all rows have. Numbers of float32 have the digits that tell them from all others.

    >>> encode_columns({"step": [0, 1], "loss": [0.5, float("nan")]}, time=7.0)
    ['{"step": 0, "loss": 0.5, "time": 7.0}', '{"step": 1, "loss": "NaN", "time": 7.0}']
    """
    formats, values = zip(*(_formatted(name, column) for name, column in columns.items()), strict=True)
    names = [
        f"{_to_line(name).replace('%', '%%')}: {each}" for name, each in zip(columns, formats, strict=True)
    ]
    fixed = [f"{_to_line(name)}: {_to_line(value)}" for name, value in same.items()]
    line = "{" + ", ".join([*names, *fixed]) + "}"
    count, varying = len(next(iter(columns.values()))), [each for each in values if each is not None]
    # One formatting of all rows: a call for each would take longer than the digits.
    numbers = chain.from_iterable(zip(*varying, strict=True))
    return "\n".join([line] * count).__mod__(tuple(numbers)).split("\n") if count else []


def _formatted(name: str, column: Any) -> tuple[str, Any]:
    """How the values of a column are written, and what is to be formatted so; None if they are all the same."""
    if isinstance(column, range):
        return "%d", column
    digits = _DIGITS.get(str(getattr(column, "dtype", "")))
    # Not finite: the sum is not either, or may overflow to that, which costs a little time.
    if digits is not None and len(column) and math.isfinite(float(column.sum())):
        is_same = column.tobytes() == column[:1].tobytes() * len(column)  # Also in the sign of 0.
        return (digits % column[0].item(), None) if is_same else (digits, column.tolist())
    return "%s", _texts(name, column)


def _texts(name: str, column: Any) -> list[str]:
    values = column.tolist() if hasattr(column, "tolist") else list(column)
    if not all(type(value) is float or type(value) is int for value in values):
        return [_to_line(plain(_number(name, value))) for value in values]
    try:
        return _to_line(values)[1:-1].split(", ") if values else []
    except ValueError:  # Some are not finite.
        return [_to_line(plain(value)) for value in values]


def decode(line: str | bytes) -> Any:
    """Reads what `encode` wrote. **Raises** `UnreadableError`, a `ValueError`, for what nobody writes.

    >>> decode('{"loss": "-Infinity"}')
    {'loss': -inf}
    """
    return restore(parse_json(line))


def plain(value: Any, path: str = "") -> Any:
    """`value` as plain data; an error names the path of what JSON cannot hold."""
    if isinstance(value, enum.Enum):
        return plain(value.value, path)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _word(value)
    if isinstance(value, str):
        return "\\" + value if _ESCAPED.fullmatch(value) else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return plain(fields, path)
    if isinstance(value, Mapping):
        return {str(key): plain(item, _join(path, str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, _join(path, str(i))) for i, item in enumerate(value)]
    if isinstance(value, PurePath):
        return str(value)
    if callable(to_list := getattr(value, "tolist", None)):
        return plain(to_list(), path)
    raise TypeError(
        f"{path or 'the value'} is a {type(value).__name__}, which JSON cannot hold; "
        "give a number, a text, a list, a dict or a dataclass of these"
    )


def restore(value: Any) -> Any:
    """The inverse of what `plain` did to floats and texts."""
    if isinstance(value, str):
        if value in NOT_FINITE:
            return NOT_FINITE[value]
        return value[1:] if value[:1] == "\\" and _ESCAPED.fullmatch(value) else value
    if isinstance(value, list):
        return [restore(item) for item in value]
    if isinstance(value, dict):
        return {key: restore(item) for key, item in value.items()}
    return value


def _number(key: str, value: Any) -> float | int:
    if hasattr(value, "tolist"):  # A numpy or jax scalar.
        value = value.tolist()
    if isinstance(value, int | float):
        return value
    if isinstance(value, list):
        raise TypeError(
            f"the metric {key!r} is an array, but a metric is one number; "
            "log an array as lw.Histogram(x), lw.Image(x) or lw.Table(x, columns)"
        )
    raise TypeError(f"the metric {key!r} is {value!r}, but a metric is one number")


def _word(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
