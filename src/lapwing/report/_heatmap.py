"""A table of numbers by two options, as a picture: colours to see the shape of it, numbers to read it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ._drawing import new_figure
from ._pictures import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = "viridis"
_CELL = (1.05, 0.72)
_FRAME = (2.6, 1.5)
_BRIGHT = 0.6

Numbers = Sequence[Sequence[float | None]]
Axis = tuple[str, Sequence[str]]


def heat_map(
    values: Numbers,
    *,
    rows: Axis,
    columns: Axis,
    label: str,
    title: str = "",
    notes: Sequence[Sequence[str]] | None = None,
    limits: tuple[float, float] | None = None,
) -> Picture:
    """The values, row by row from below, each axis with its name and what stands at its places. `notes` stand below
    the numbers; `limits` are the values at the ends of the colours; a cell without a value stays empty.

    >>> drawn = heat_map([[0.1, 0.2], [0.3, None]], rows=("a", "01"), columns=("b", "xy"), label="loss")
    >>> drawn.name, drawn.light[1:4]
    ('heatmap.png', b'PNG')
    """
    table = np.array([[np.nan if value is None else value for value in line] for line in values], float)
    low, high = limits or (float(np.nanmin(table)), float(np.nanmax(table)))

    def make() -> "Figure":
        figure = new_figure(_FRAME[0] + _CELL[0] * table.shape[1], _FRAME[1] + _CELL[1] * table.shape[0])
        axes = figure.add_subplot()
        image = axes.imshow(table, vmin=low, vmax=high, cmap=_COLOURS, origin="lower", aspect="auto")
        for (row, column), value in np.ndenumerate(table):
            if np.isfinite(value):
                note = f"\n{notes[row][column]}" if notes and notes[row][column] else ""
                bright = value - low > _BRIGHT * (high - low)
                axes.text(
                    column,
                    row,
                    _words(value, limits) + note,
                    ha="center",
                    va="center",
                    color="black" if bright else "white",
                    fontsize=9,
                )
        axes.set_xticks(range(len(columns[1])), columns[1])
        axes.set_yticks(range(len(rows[1])), rows[1])
        axes.set_xlabel(columns[0])
        axes.set_ylabel(rows[0])
        axes.set_title(title, fontsize="medium")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        figure.colorbar(image, label=label)
        return figure

    named = " × ".join(filter(None, [rows[0], columns[0]]))
    return Picture("heatmap.png", f"{label} by {named}", make)


def _words(value: float, limits: tuple[float, float] | None) -> str:
    return f"{value:.1%}" if limits == (0.0, 1.0) else f"{value:.3g}"
