"""`lapwing time -- CMD ...`: times the output of any program.

The table goes to standard error, so that the output of the program can be used as usual.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import tyro
from rich.text import Text

from lapwing.journal import to_json
from lapwing.report import lap_table
from lapwing.timing import time_command

from .output import print_rich
from .parse import Json, UsageError, parse

Marker = Annotated[
    str | None, tyro.conf.arg(metavar="TEXT", help="end a lap only at lines that contain this")
]
Trace = Annotated[
    Path | None, tyro.conf.arg(metavar="FILE", help="write a Chrome trace, for ui.perfetto.dev")
]


def time(words: list[str]) -> int:
    """Times a command. Words before `--` are options of Lapwing, words after it are the command."""
    options, command = _split(words)

    def run(*, marker: Marker = None, trace: Trace = None, as_json: Json = False) -> int:
        """Runs a command, passes its output through and times the lines it prints.

        The command follows two dashes: lapwing time -- python train.py

        Table and JSON go to standard error, the output of the command to standard output.
        """
        if trace:
            # Fail now, not after the command has run for an hour.
            with _writing(trace):
                trace.open("a").close()
        timing = time_command(command, marker)
        if as_json:
            print(to_json(timing.to_json()), file=sys.stderr)
        else:
            tables = [lap_table(timing.summary)] if timing.has_laps else []
            print_rich(*tables, Text(timing.remark()), to="stderr")
        if trace:
            with _writing(trace):
                timing.laps.write_trace(trace)
        return timing.status

    return parse(run, options, "lapwing time")


@contextmanager
def _writing(trace: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write the trace {str(trace)!r}: {error.strerror}") from None


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    if "--" in words:
        cut = words.index("--")
        return words[:cut], words[cut + 1 :]
    # Without options, the dashes can be omitted.
    return ([], words) if words and not words[0].startswith("-") else (words, [])
