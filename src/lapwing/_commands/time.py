"""`lapwing time -- CMD ...`: laps of a command from outside.

The table goes to standard error, so that the command's own output can be used as if it were run alone.
"""

import sys
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
    """Everything before `--` is for Lapwing, everything after it is the command."""
    options, command = _split(words)

    def run(*, marker: Marker = None, trace: Trace = None, as_json: Json = False) -> int:
        """Runs a command, passes its output through and laps the lines it prints.

        The command stands after two dashes: lapwing time -- python train.py
        """
        if trace:
            _check_writable(trace)
        timing = time_command(command, marker)
        if trace:
            timing.laps.write_trace(trace)
        if as_json:
            print(to_json(timing.to_json()), file=sys.stderr)
        else:
            print_rich(lap_table(timing.summary), Text(timing.remark()), to="stderr")
        return timing.status

    return parse(run, options, "lapwing time")


def _check_writable(path: Path) -> None:
    """Better now than after the command has run for an hour."""
    try:
        path.touch()
    except OSError as error:
        raise UsageError(f"cannot write the trace {str(path)!r}: {error.strerror}") from None


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    if "--" in words:
        cut = words.index("--")
        return words[:cut], words[cut + 1 :]
    # Without options of ours the dashes may be left out.
    return ([], words) if words and not words[0].startswith("-") else (words, [])
