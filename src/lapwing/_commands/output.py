"""Output of the commands: tables for people, JSON for programs.

Names and texts come from files that anybody may have written. Here they lose what a terminal would obey, and nothing in
them is markup.
"""

import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from lapwing.core import printable
from lapwing.journal import to_json

# Wide enough that rich never truncates a table for a program that reads it.
_WIDTH_WITHOUT_TERMINAL = 1000
_UNITS = [(86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")]


def print_json(value: Any) -> None:
    """Prints strict JSON; numbers that are not finite are strings (see `lapwing.journal`)."""
    print(to_json(value))


def print_rich(*what: RenderableType, to: Literal["stdout", "stderr"] = "stdout") -> None:
    """Prints with colours in a terminal, and with lines of any length elsewhere. A string is text without markup."""
    file = getattr(sys, to)
    width = None if file.isatty() else _WIDTH_WITHOUT_TERMINAL
    console = Console(file=file, width=width, highlight=False, markup=False, emoji=False)
    for each in what:
        console.print(cell(each) if isinstance(each, str) else each)


def print_lines(*lines: object, to: Literal["stdout", "stderr"] = "stdout") -> None:
    """Prints lines of text as they are, without control codes."""
    print("\n".join(printable(str(line)) for line in lines), file=getattr(sys, to))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Sequence[str] = ()) -> Table:
    """A table without lines; the columns named in `numbers` are right-aligned."""
    rich_table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in header:
        rich_table.add_column(cell(name), justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        rich_table.add_row(*(cell(value) for value in row))
    return rich_table


def cell(value: Any) -> Text:
    """Any value as text: short numbers, an empty text for None, and no control codes of the terminal.

    >>> [str(cell(value)) for value in (0.123456789, 1234567, None, "a" + chr(27) + "[2Jb")]
    ['0.123457', '1234567', '', 'a�[2Jb']
    """
    if value is None:
        return Text("")
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return Text(printable(text))


def age(since: float) -> str:
    """The time since a moment, in its largest unit.

    >>> age(time.time() - 7300), age(time.time())
    ('2 h', '0 s')
    """
    seconds = max(0.0, time.time() - since)
    size, unit = next((pair for pair in _UNITS if seconds >= pair[0]), _UNITS[-1])
    return f"{seconds / size:.0f} {unit}"
