"""A table of numbers by two options, as a picture: colours to see the shape of it, numbers to read it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lapwing.core import plot_text

from ._drawing import run_figure
from ._pictures import Picture

if TYPE_CHECKING:
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

_COLOURS = "viridis"
_CELL = (1.05, 0.72)
_FRAME = (2.6, 1.5)
_BRIGHT = 0.6
_FAR_APART = 10

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
    the numbers; `limits` are the values at the ends of the colours, otherwise the lowest and the highest; a cell
    without a value stays empty.

    >>> drawn = heat_map([[0.1, 0.2], [0.3, None]], rows=("a", "01"), columns=("b", "xy"), label="loss")
    >>> drawn.name, drawn.light[1:4]
    ('heatmap.png', b'PNG')
    """
    table = np.array([[np.nan if value is None else value for value in line] for line in values], float)
    table[~np.isfinite(table)] = np.nan

    def make() -> "Figure":
        norm = _norm(table, limits)
        figure = run_figure(_FRAME[0] + _CELL[0] * table.shape[1], _FRAME[1] + _CELL[1] * table.shape[0])
        axes = figure.add_subplot()
        image = axes.imshow(table, norm=norm, cmap=_COLOURS, origin="lower", aspect="auto")
        for (row, column), value in np.ndenumerate(table):
            if np.isfinite(value):
                note = f"\n{notes[row][column]}" if notes and notes[row][column] else ""
                axes.text(
                    column,
                    row,
                    _words(value, limits) + note,
                    ha="center",
                    va="center",
                    color="black" if norm(value) > _BRIGHT else "white",
                    fontsize=9,
                )
        axes.set_xticks(range(len(columns[1])), list(map(plot_text, columns[1])))
        axes.set_yticks(range(len(rows[1])), list(map(plot_text, rows[1])))
        axes.set_xlabel(plot_text(columns[0]))
        axes.set_ylabel(plot_text(rows[0]))
        axes.set_title(plot_text(title), fontsize="medium")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        figure.colorbar(image, label=plot_text(label))
        return figure

    named = " × ".join(filter(None, [rows[0], columns[0]]))
    return Picture("heatmap.png", f"{label} by {named}", make)


def _norm(table: np.ndarray, limits: tuple[float, float] | None) -> "Normalize":
    """How values become colours: on a log scale where they span more than a power of ten, as losses do."""
    from matplotlib.colors import LogNorm, Normalize

    low, high = limits or (float(np.nanmin(table)), float(np.nanmax(table)))
    far_apart = limits is None and low > 0 and high > _FAR_APART * low
    return LogNorm(low, high) if far_apart else Normalize(low, high)


def _words(value: float, limits: tuple[float, float] | None) -> str:
    return f"{value:.1%}" if limits == (0.0, 1.0) else f"{value:.3g}"
