"""Plots of dataflow matrix machines: their answers over the cycles, and links against error while they are pruned."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lapwing.core import LapwingError, new_figure, plot_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
ANSWER, EXPECTED = "#2463a8", "#e08a1e"

Answers = Mapping[str, Sequence[Any]]


class DrawingError(LapwingError, ValueError):
    """A drawing that cannot be written where it should be."""


def answers_picture(
    answers: Answers, expected: Answers | None = None, file: str | Path | None = None
) -> "Figure":
    """Plots each field of the answers over the cycles, and writes the plot to the file if one is given.

    >>> from lapwing import dmm
    >>> answers = dmm.interpret(dmm.duplicate_detector(), 40, text="aa").answers
    >>> len(answers_picture(answers).axes)
    2
    """
    figure = new_figure(9, 0.6 + 1.9 * len(answers), dpi=110)
    panels = figure.subplots(len(answers), 1, sharex=True, squeeze=False)[:, 0]
    for panel, (field, numbers) in zip(panels, answers.items(), strict=True):
        cycles, style = range(1, len(numbers) + 1), {"drawstyle": "steps-mid"}
        if expected is not None:
            wanted = [float(x) for x in expected[field]]
            panel.plot(cycles, wanted, color=EXPECTED, lw=3, alpha=0.6, label="expected", **style)
        panel.plot(cycles, [float(x) for x in numbers], color=ANSWER, lw=1.2, label="answer", **style)
        panel.set_ylabel(plot_text(field))
        panel.grid(alpha=0.25)
    panels[-1].set_xlabel("cycle")
    if expected is not None:
        panels[0].legend(loc="upper left", frameon=False)
    return save_figure(figure, file)


def pruning_picture(path: np.ndarray, file: str | Path | None = None) -> "Figure":
    """Plots the links of each start against its error; `path` is [rounds, starts, 2].

    >>> len(pruning_picture(np.ones((3, 2, 2))).axes[0].lines)
    2
    """
    figure = new_figure(8, 4.5, dpi=110)
    panel = figure.subplots()
    for k in range(path.shape[1]):
        links, errors = path[:, k].T
        shown = errors < 1e8
        links, errors = links[shown], np.maximum(errors[shown], 1e-8)
        # A start that begins again has all its links again; its line is broken there.
        again = 1 + np.flatnonzero(np.diff(links) > 0.5 * links[:-1].max(initial=1))
        links, errors = (np.insert(numbers, again, np.nan) for numbers in (links, errors))
        panel.plot(links, errors, ".-", lw=1, ms=4, label=f"start {k}")
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.invert_xaxis()
    panel.set_xlabel("soft links")
    panel.set_ylabel("squared error of a text")
    panel.grid(alpha=0.25)
    panel.legend(frameon=False, fontsize=8)
    return save_figure(figure, file)


def save_figure(figure: "Figure", file: str | Path | None) -> "Figure":
    """Writes the figure in the format of the file's suffix, if a file is given, and returns it."""
    if file is None:
        return figure
    if Path(file).suffix not in FORMATS:
        raise DrawingError(f"cannot draw to {str(file)!r}: write a file that ends in {' or '.join(FORMATS)}")
    try:
        figure.savefig(file)
    except OSError as error:
        raise DrawingError(f"cannot draw to {str(file)!r}: {error.strerror}; name another file") from None
    return figure
