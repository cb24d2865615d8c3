"""The files of CIFAR-10's Python version, which are pickles, read without unpickling them.

To unpickle a file is to run it: it may call any function. Restricting the names that it may call is not enough, since
those left allocate whatever a file says (an array of a terabyte, a memo of billions of entries). So this interprets the
few instructions that such a file holds, and knows three names, none of which it calls: an array is recognized by the
shape of its instructions, and made here, of the bytes in the file.
"""

import io
import pickletools
from typing import Any, Literal

import numpy as np

from ._images import ImageFileError

_MOST_INSTRUCTIONS = 200_000  # A file of 10,000 images has about 60,000.
_PIXELS = 3 * 32 * 32
_MARK = object()
_Name = Literal["numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype"]
_NAMES: tuple[_Name, ...] = ("numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype")
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _RefusedError(Exception):
    """Why a file is not one of CIFAR-10."""


class _Global:
    """A name of numpy."""

    def __init__(self, name: str):
        if name not in _NAMES:
            raise _RefusedError(f"it asks for {name.replace(' ', '.')!r:.80}")
        self.name = name


class _Made:
    """What a name was called with, and what was made of it: an array of bytes, or their type."""

    def __init__(self, name: str):
        self.name = name
        self.pixels: np.ndarray | None = None


def read_pickle(content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (images, 3072) and labels of one file.

    **Raises** `ImageFileError` for every file that is not one of images and labels.
    """
    try:
        found = _interpret(content)
        return _pixels_and_labels(found)
    except _RefusedError as refused:
        raise ImageFileError(f"{name} is not a file of CIFAR-10's Python version: {refused}") from None
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        # Truncated, or instructions in an order that no writer of pickles makes.
        raise ImageFileError(
            f"{name} is not a file of CIFAR-10's Python version: it is truncated or no pickle of the kind"
        ) from None


def _pixels_and_labels(found: Any) -> tuple[np.ndarray, np.ndarray]:
    if type(found) is not dict or not {b"data", b"labels"} <= found.keys():
        raise _RefusedError("it should hold a dict with 'data' and 'labels'")
    made, labels = found[b"data"], found[b"labels"]
    if type(made) is not _Made or made.pixels is None:
        raise _RefusedError("its 'data' should be an array")
    if type(labels) is not list or not all(type(label) is int and 0 <= label <= 9 for label in labels):
        raise _RefusedError("its 'labels' should be a list of numbers from 0 to 9")
    if len(labels) != len(made.pixels):
        raise _RefusedError(f"it has {len(made.pixels)} images and {len(labels)} labels")
    return made.pixels, np.array(labels, np.uint8)


def _interpret(content: bytes) -> Any:
    """What the pickle makes, by a machine with a stack."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for count, (instruction, given, _) in enumerate(pickletools.genops(io.BytesIO(content))):
        if count > _MOST_INSTRUCTIONS:
            raise _RefusedError(f"it has more than {_MOST_INSTRUCTIONS} instructions")
        match instruction.name:
            case "PROTO":
                pass
            case "STOP":
                return stack.pop()
            case "SHORT_BINSTRING" | "BINSTRING":
                stack.append(str(given).encode("latin-1"))
            case "BININT" | "BININT1" | "BININT2":
                stack.append(given)
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_DICT":
                stack.append({})
            case "MARK":
                stack.append(_MARK)
            case "BINPUT" | "LONG_BINPUT":
                memo[int(str(given))] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[int(str(given))])
            case "GLOBAL":
                stack.append(_Global(str(given)))
            case name if name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            case name if name in _TUPLES:
                items = [stack.pop() for _ in range(_TUPLES[name])]
                stack.append(tuple(reversed(items)))
            case "TUPLE":
                stack.append(tuple(_since_mark(stack)))
            case "APPEND" | "APPENDS":
                items = _since_mark(stack) if instruction.name == "APPENDS" else [stack.pop()]
                _of(list, stack[-1]).extend(items)
            case "SETITEM" | "SETITEMS":
                items = _since_mark(stack) if instruction.name == "SETITEMS" else [stack.pop(-2), stack.pop()]
                _of(dict, stack[-1]).update(zip(map(_key, items[::2]), items[1::2], strict=True))
            case "REDUCE":
                _, called = stack.pop(), _of(_Global, stack.pop())
                stack.append(_Made(called.name))
            case "BUILD":
                state = stack.pop()
                _build(_of(_Made, stack[-1]), state)
            case other:
                raise _RefusedError(f"it has the instruction {other}")
    raise _RefusedError("it has no end")


def _build(made: _Made, state: Any) -> None:
    """The state of an array: a version, its shape, the type of its numbers, whether columns come first, and bytes."""
    if made.name == "numpy dtype":
        return
    _, shape, kind, by_columns, content = _of(tuple, state)
    whole = type(shape) is tuple and len(shape) == 2 and shape[1] == _PIXELS and type(shape[0]) is int
    if not whole or type(kind) is not _Made or by_columns is not False or type(content) is not bytes:
        raise _RefusedError(f"its array should have rows of {_PIXELS} bytes")
    if len(content) != shape[0] * _PIXELS:
        raise _RefusedError(f"its array has {len(content)} bytes instead of {shape[0]} × {_PIXELS}")
    made.pixels = np.frombuffer(content, np.uint8).reshape(shape)


def _since_mark(stack: list[Any]) -> list[Any]:
    items = []
    while (item := stack.pop()) is not _MARK:
        items.append(item)
    return items[::-1]


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value


def _key(value: Any) -> bytes:
    return _of(bytes, value)
