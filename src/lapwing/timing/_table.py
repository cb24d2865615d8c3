"""A summary of laps as rows of text: the columns of every table of laps, and the format of its times."""

from itertools import zip_longest
from typing import TYPE_CHECKING

from lapwing.core import format_seconds

if TYPE_CHECKING:
    from ._summary import LapSummary, PhaseTimes

STATISTICS = ("total", "mean", "p50", "p95", "max")
# These columns are shown only if something was measured.
OPTIONAL = ("own", "cpu", "trace", "lower", "compile", "first")


def lap_rows(summary: "LapSummary") -> tuple[list[str], list[list[str]], list[str]]:
    """The header, the rows and the remarks below the table.

    >>> from lapwing.timing import Laps
    >>> lap_rows(Laps().summary())[0]
    ['phase', 'count', 'total', 'mean', 'p50', 'p95', 'max', 'share']

    The phases come first, then `unaccounted`, then the `step` they sum to. A nested phase is indented; the time of its
    parent includes it.
    """
    times = [*summary.phases, summary.unaccounted, summary.step] if summary.phases else [summary.step]
    shown = [name for name in OPTIONAL if _measured(name, summary, times)]
    header = ["phase", "count", *STATISTICS, "share", *shown]
    return header, [_row(phase, shown) for phase in times], _remarks(summary)


def _measured(column: str, summary: "LapSummary", times: "list[PhaseTimes]") -> bool:
    if column == "own":
        return any(phase.depth for phase in summary.phases)
    return any(getattr(phase, column) is not None for phase in times)


def _row(phase: "PhaseTimes", shown: list[str]) -> list[str]:
    share = "" if phase.share is None else f"{phase.share:.1%}"
    return [
        "  " * phase.depth + phase.path,
        str(phase.count),
        *(format_seconds(getattr(phase, name)) for name in STATISTICS),
        share,
        *(format_seconds(getattr(phase, name)) for name in shown),
    ]


def _remarks(summary: "LapSummary") -> list[str]:
    remarks = []
    if summary.apart:
        noun = "step" if summary.apart == 1 else "steps"
        remarks.append(
            f"{summary.apart} {noun} with first calls or compilation excluded: "
            f"{format_seconds(summary.apart_seconds)}."
        )
    elif summary.phases:
        remarks.append("No step was closed: call laps.step() at the end of each step.")
    if summary.misnested:
        remarks.append(f"Phases closed because an outer one ended first: {summary.misnested}.")
    return remarks


def text_table(summary: "LapSummary") -> str:
    """The table in plain text, for `print(laps.summary())`."""
    header, rows, remarks = lap_rows(summary)
    widths = [max(map(len, column)) for column in zip_longest(header, *rows, fillvalue="")]
    rule = "  ".join("─" * width for width in widths)
    lines = [_line(header, widths), rule, *(_line(row, widths) for row in rows[:-1])]
    if len(rows) > 1:
        lines.append(rule)
    return "\n".join([*lines, _line(rows[-1], widths), *remarks])


def _line(cells: list[str], widths: list[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]).rstrip()
