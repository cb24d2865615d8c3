"""What the commands print: tables for people, JSON for programs."""

import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from lapwing.journal import to_json

# Wide enough that rich never cuts a table short for a program that reads it.
_WIDTH_WITHOUT_TERMINAL = 1000
_UNITS = [(86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")]


def print_json(value: Any) -> None:
    """JSON that strict readers take; numbers that are not finite are strings (see `lapwing.journal`)."""
    print(to_json(value))


def print_rich(*what: RenderableType, to: Literal["stdout", "stderr"] = "stdout") -> None:
    """Prints with colour where there is a terminal, and whole lines where there is none."""
    file = getattr(sys, to)
    width = None if file.isatty() else _WIDTH_WITHOUT_TERMINAL
    console = Console(file=file, width=width, highlight=False)
    for each in what:
        console.print(each)


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Sequence[str] = ()) -> Table:
    """A table without lines; the columns named in `numbers` stand to the right."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in header:
        made.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell(value) for value in row))
    return made


def cell(value: Any) -> Text:
    """Any value as text: numbers short, nothing as nothing, and no codes that would command the terminal.

    >>> [str(cell(value)) for value in (0.123456789, 1234567, None, "a" + chr(27) + "[2Jb")]
    ['0.123457', '1234567', '', 'a�[2Jb']
    """
    if value is None:
        return Text("")
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return Text("".join(letter if letter.isprintable() or letter in "\n\t" else "�" for letter in text))


def age(since: float) -> str:
    """How long ago, in its largest unit.

    >>> age(time.time() - 7300), age(time.time())
    ('2 h', '0 s')
    """
    seconds = max(0.0, time.time() - since)
    size, unit = next((pair for pair in _UNITS if seconds >= pair[0]), _UNITS[-1])
    return f"{seconds / size:.0f} {unit}"
