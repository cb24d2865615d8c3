"""A summary as rows of text: the one place that decides what a table of laps shows and how times look."""

from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._summary import LapSummary, PhaseTimes

STATISTICS = ("total", "mean", "p50", "p95", "max")
# These columns stand only where something was measured.
OPTIONAL = ("own", "cpu", "trace", "lower", "compile", "first")


def format_seconds(seconds: float | None) -> str:
    """Three digits and a unit.

    >>> format_seconds(2.3610), format_seconds(0.00040857), format_seconds(None)
    ('2.36 s', '409 µs', '')
    """
    if seconds is None:
        return ""
    # A unit is left at 999.5, where three digits would round up to 1000 of it.
    for limit, factor, unit in ((999.5e-9, 1e9, "ns"), (999.5e-6, 1e6, "µs"), (999.5e-3, 1e3, "ms")):
        if seconds < limit:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{_three_digits(seconds)} s"


def format_wait(seconds: float) -> str:
    """A time to wait for, in the unit that a person would use.

    >>> format_wait(8.4), format_wait(700), format_wait(6000), format_wait(300_000)
    ('8 s', '12 min', '1.7 h', '3.5 days')
    """
    for size, unit, digits in ((86400.0, "days", 1), (3600.0, "h", 1), (60.0, "min", 0)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{seconds:.0f} s"


def _three_digits(value: float) -> str:
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f}" if value else "0"


def lap_rows(summary: "LapSummary") -> tuple[list[str], list[list[str]], list[str]]:
    """The header, the rows and the remarks below the table.

    >>> from lapwing.timing import Laps
    >>> lap_rows(Laps().summary())[0]
    ['phase', 'count', 'total', 'mean', 'p50', 'p95', 'max', 'share']

    The phases come first, then `unaccounted`, then the `step` they sum to. A nested phase is indented; its
    time is already in that of the phase above it.
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
            f"{summary.apart} {noun} with first calls or compiling kept apart: "
            f"{format_seconds(summary.apart_seconds)}."
        )
    elif summary.phases:
        remarks.append("No step was closed: call laps.step() at the end of each step.")
    if summary.misnested:
        remarks.append(f"Phases closed because one around them ended first: {summary.misnested}.")
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
