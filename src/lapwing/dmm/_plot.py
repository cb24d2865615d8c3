"""The answers of a machine over its cycles, as a picture; beside those expected, if there are any."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ._activation import MachineError

FORMATS = (".png", ".svg", ".pdf")
OURS, EXPECTED = "#2463a8", "#e08a1e"

Answers = Mapping[str, Sequence[Any]]


def plot_answers(answers: Answers, expected: Answers | None = None, file: str | Path | None = None) -> Figure:
    """Draws each field of the answers over the cycles, and writes the picture to the file if one is given.

    >>> from lapwing import dmm
    >>> answers = dmm.interpret(dmm.duplicate_detector(), 40, text="aa").answers
    >>> len(dmm.plot_answers(answers).axes)
    2
    """
    figure = Figure(figsize=(9, 0.6 + 1.9 * len(answers)), dpi=110, layout="constrained")
    panels = figure.subplots(len(answers), 1, sharex=True, squeeze=False)[:, 0]
    for panel, (field, numbers) in zip(panels, answers.items(), strict=True):
        cycles = range(1, len(numbers) + 1)
        if expected is not None:
            theirs = [float(x) for x in expected[field]]
            panel.plot(
                cycles, theirs, color=EXPECTED, lw=3, alpha=0.6, label="expected", drawstyle="steps-mid"
            )
        ours = [float(x) for x in numbers]
        panel.plot(cycles, ours, color=OURS, lw=1.2, label="answer", drawstyle="steps-mid")
        panel.set_ylabel(field)
        panel.grid(alpha=0.25)
    panels[-1].set_xlabel("cycle")
    if expected is not None:
        panels[0].legend(loc="upper left", frameon=False)
    if file is not None:
        save_figure(figure, file)
    return figure


def save_figure(figure: Figure, file: str | Path) -> None:
    """Writes the picture in the format that the file's suffix names."""
    if Path(file).suffix not in FORMATS:
        raise MachineError(f"cannot draw to {str(file)!r}: write a file that ends in {' or '.join(FORMATS)}")
    try:
        figure.savefig(file)
    except OSError as error:
        raise MachineError(f"cannot draw to {str(file)!r}: {error.strerror}; name another file") from None
