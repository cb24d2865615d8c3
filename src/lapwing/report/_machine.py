"""A dataflow matrix machine as a drawing: neurons in columns from left to right, links from outputs to inputs.

The width of a link is the size of its weight; positive weights are blue, negative ones red; hard links are dashed, dead
ones grey and dotted. Only fields that a link uses are drawn, and of very many links only the strongest.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path as File
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lapwing.core import new_figure, plot_text

from ._machine_layout import WIDTH, Box, Drawing, Link, Point, arrange
from ._machine_plots import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.path import Path

POSITIVE, NEGATIVE, DEAD = "#2463a8", "#c0392b", "#9a9a9a"
BOX = "#f6f4ee"
MAX_LABELS = 60  # links, above which their weights are not written
LONGEST_NAME = 40
MAX_LINKS = 1500  # drawn: more would take minutes and show only ink


class Drawable(Protocol):
    """What is drawn of a `dmm.Machine`."""

    def links(self) -> Sequence[Link]: ...
    def columns(self) -> Mapping[str, int]: ...
    def idle(self) -> Sequence[str]: ...


def machine_picture(machine: Drawable, file: str | File | None = None) -> "Figure":
    """Draws a `dmm.Machine`, and writes the drawing to the file (`.png`, `.svg`, `.pdf`) if one is given.

    >>> from lapwing import dmm
    >>> len(machine_picture(dmm.duplicate_detector()).axes)
    1
    """
    every = [link for link in machine.links() if not link.passes_mix]
    links = sorted(sorted(every, key=lambda link: -abs(link.weight))[:MAX_LINKS])
    idle = machine.idle()
    drawing = arrange({name: c for name, c in machine.columns().items() if name not in idle}, links)
    boxes = drawing.boxes.values()
    right = max((box.x for box in boxes), default=0.0) + WIDTH
    top = max((box.y for box in boxes), default=0.5)
    bottom = min((box.y - box.height for box in boxes), default=-0.5)
    figure = new_figure(right + 1.2, top - bottom + 1.0, layout=None, dpi=110)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.6, right + 0.6), ylim=(bottom - 0.4, top + 0.6))
    axes.axis("off")
    if len(links) < len(every):
        note = f"the {len(links)} strongest of {len(every)} links"
        axes.text(0, bottom - 0.25, note, size=8, color="#555555")
    _draw_links(axes, links, drawing)
    for name, box in drawing.boxes.items():
        _draw_box(axes, name, box)
    return save_figure(figure, file)


def _draw_box(axes: "Axes", name: str, box: Box) -> None:
    from matplotlib.patches import FancyBboxPatch

    corner, style = (box.x, box.y - box.height), "round,pad=0,rounding_size=0.08"
    axes.add_patch(
        FancyBboxPatch(corner, WIDTH, box.height, boxstyle=style, fc=BOX, ec="#444444", lw=0.9, zorder=3)
    )
    axes.text(
        box.x + WIDTH / 2,
        box.y - 0.2,
        _short(name),
        ha="center",
        va="center",
        size=9,
        weight="bold",
        zorder=4,
    )
    for field in box.inputs:
        x, y = box.input_point(field)
        axes.text(x + 0.08, y, _short(field), ha="left", va="center", size=7, color="#555555", zorder=4)
    for field in box.outputs:
        x, y = box.output_point(field)
        axes.text(x - 0.08, y, _short(field), ha="right", va="center", size=7, color="#555555", zorder=4)


def _short(name: str) -> str:
    return plot_text(name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…")


def _draw_links(axes: "Axes", links: list[Link], drawing: Drawing) -> None:
    from matplotlib.patches import PathPatch

    largest = max((abs(link.weight) for link in links), default=1.0) or 1.0
    labels: dict[tuple[str, str], int] = {}
    for link in links:
        color = DEAD if link.dead else POSITIVE if link.weight >= 0 else NEGATIVE
        style = ":" if link.dead else "--" if link.hard else "-"
        width = 0.3 + 2.7 * abs(link.weight) / largest
        curve = _curve(drawing, link)
        axes.add_patch(PathPatch(curve, fc="none", ec=color, lw=width, ls=style, alpha=0.75, zorder=1))
        if len(links) <= MAX_LABELS:
            rank = labels[link.to, link.to_field] = labels.get((link.to, link.to_field), -1) + 1
            x, y = _on_last_bend(curve, 0.8 - 0.2 * rank)
            frame = {"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.8}
            text = f"{link.weight:.3g}"
            axes.text(x, y, text, size=6.5, color=color, ha="center", va="center", zorder=2, bbox=frame)


def _curve(drawing: Drawing, link: Link) -> "Path":
    from matplotlib.path import Path

    corners = drawing.curve(link)
    return Path(corners, [Path.MOVETO] + [Path.CURVE4] * (len(corners) - 1))


def _on_last_bend(curve: "Path", t: float) -> Point:
    """The point at t, from 0 to 1, of the last cubic piece of the curve."""
    weights = np.array([(1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3])
    x, y = weights @ np.asarray(curve.vertices)[-4:]
    return float(x), float(y)
