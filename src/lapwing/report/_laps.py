"""A table and a picture of laps: where the time of each step went.

Both take a `LapSummary` or its JSON (the content of a run's `laps.json`).
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from lapwing.core import format_seconds, new_figure, plot_text, printable
from lapwing.timing import LapSummary, lap_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES = {"phase": "bold", "share": "bold", **dict.fromkeys(("trace", "lower", "compile", "first"), "dim")}
# Only the unaccounted time is grey.
GREY = "0.8"
COLORS = [
    f"tab:{name}" for name in ["blue", "orange", "green", "red", "purple", "brown", "pink", "olive", "cyan"]
]
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def lap_table(laps: LapSummary | Mapping[str, Any], title: str = "Where the time of a step goes") -> Table:
    """The phases, the unaccounted time and the step they sum to, as a rich table.

    >>> from lapwing.timing import Laps
    >>> table = lap_table(Laps().summary())
    >>> [column.header for column in table.columns]
    ['phase', 'count', 'total', 'mean', 'p50', 'p95', 'max', 'share']
    """
    header, rows, remarks = lap_rows(_summary(laps))
    # Without edges, five phases with a first call fit into 80 columns.
    table = Table(title=title, box=box.SIMPLE, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    table.caption, table.caption_justify = "\n".join(remarks) or None, "left"
    for name in header:
        table.add_column(name, justify="left" if name == "phase" else "right", style=STYLES.get(name, ""))
    for row in rows[:-1]:
        table.add_row(*map(_cell, row))
    table.add_section()
    table.add_row(*map(_cell, rows[-1]), style="bold")
    return table


def _cell(text: str) -> Text:
    """Not a string, in which rich would look for markup."""
    return Text(printable(text))


def fused_line(laps: Any) -> str | None:
    """The time of the fused step, which `fit` adds to its laps; None without it. The phases are timed separately.

    >>> fused_line({"fused": {"p50": 0.25, "steps_per_call": 100}})
    'Fused, as it runs: 2.50 ms per step.'
    """
    match laps:
        case {"fused": {"p50": float() | int() as p50, "steps_per_call": int(steps)}} if p50 > 0 < steps:
            return f"Fused, as it runs: {format_seconds(p50 / steps)} per step."
    return None


def lap_picture(laps: LapSummary | Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Draws stacked bars over the steady steps, one colour per phase and grey for the unaccounted time.

    The suffix of `path` is the format (.png, .svg, .pdf). A bar of a long run is the mean of several steps.

    >>> import tempfile
    >>> from lapwing.timing import Laps
    >>> laps = Laps()
    >>> for _ in range(3):
    ...     with laps("attack"):
    ...         pass
    ...     laps.step()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lap_picture(laps.summary(), f"{folder}/laps.png")
    """
    lap_figure(_summary(laps)).savefig(path, dpi=150)


def lap_figure(summary: LapSummary) -> "Figure":
    if not summary.series.seconds:
        raise ValueError(
            "expected laps with a steady step to draw, found none; close more than one step with laps.step()"
        )
    figure = new_figure(9, 4.5)
    axes = figure.add_subplot()
    _draw_bars(axes, summary)
    figure.suptitle("Where the time of a step goes")
    axes.set_title(_headline(summary), fontsize="medium", color="0.5")
    # In the order of the stack.
    figure.legend(reverse=True, loc="outside right upper", frameon=False)
    return figure


def _draw_bars(axes: "Axes", summary: LapSummary) -> None:
    series = summary.series
    first_steps = [bar * series.stride + 0.5 for bar in range(len(series.seconds))]
    highest = max(map(sum, series.seconds))
    factor, unit = next((each for each in UNITS if highest >= each[0]), UNITS[-1])
    bottom = [0.0] * len(first_steps)
    for number, (label, seconds, is_rest) in enumerate(_parts(summary)):
        heights = [each / factor for each in seconds]
        color = GREY if is_rest else COLORS[number % len(COLORS)]
        axes.bar(first_steps, heights, series.stride, bottom, align="edge", color=color, label=label)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.set_xlim(0.5, series.steps + 0.5)
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel(
        "steady step" if series.stride == 1 else f"steady step (each bar: the mean of {series.stride})"
    )
    axes.set_ylabel(f"time of a step ({unit})")
    axes.spines[["top", "right"]].set_visible(False)


def _parts(summary: LapSummary) -> list[tuple[str, list[float], bool]]:
    """Label, seconds of each bar and whether it is the unaccounted time, which is last and so on top."""
    series = summary.series
    named = dict(zip(series.parts, map(list, zip(*series.seconds, strict=True)), strict=True))
    tops = [phase for phase in summary.phases if not phase.depth and phase.count]
    rest = summary.unaccounted
    parts = [(f"{plot_text(phase.path)}  {phase.share or 0:.1%}", named[phase.path], False) for phase in tops]
    rest_label = f"{plot_text(rest.path)}  {rest.share or 0:.1%}" if tops else "not divided into phases"
    return [*parts, (rest_label, named[rest.path], True)]


def _headline(summary: LapSummary) -> str:
    step = summary.step
    return (
        f"median {format_seconds(step.p50)}, 95% below {format_seconds(step.p95)}, "
        f"first step {format_seconds(step.first)} (not shown)"
    )


def _summary(laps: LapSummary | Mapping[str, Any]) -> LapSummary:
    return laps if isinstance(laps, LapSummary) else LapSummary.from_json(laps)
