"""A machine as a picture: neurons in columns from left to right, links from output fields to input fields.

A link is as thick as its weight is large, blue if positive and red if negative; hard links are dashed, dead
ones grey and dotted. Only fields that a link uses are drawn, and of very many links only the strongest.
"""

from itertools import pairwise
from pathlib import Path as File

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path

from ._machine import Link, Machine
from ._neuron import FUNCTION
from ._places import WIDTH, Box, Places, Point, arrange
from ._plot import save_figure

POSITIVE, NEGATIVE, DEAD = "#2463a8", "#c0392b", "#9a9a9a"
BOX = "#f6f4ee"
MOST_LABELS = 60  # links, above which their weights are not written
MOST_LINKS = 1500  # drawn: more would take minutes and show nothing but ink


def picture(machine: Machine, file: str | File | None = None) -> Figure:
    """Draws the machine, and writes it to the file (`.png`, `.svg`, `.pdf`) if one is given.

    >>> from lapwing import dmm
    >>> len(dmm.picture(dmm.duplicate_detector()).axes)
    1
    """
    everything = [link for link in machine.links() if link.to_field != FUNCTION or link.to != link.source]
    links = sorted(sorted(everything, key=lambda link: -abs(link.weight))[:MOST_LINKS])
    places = arrange(machine, links)
    boxes = places.boxes.values()
    right = max((box.x for box in boxes), default=0.0) + WIDTH
    top = max((box.y for box in boxes), default=0.5)
    bottom = min((box.y - box.height for box in boxes), default=-0.5)
    figure = Figure(figsize=(right + 1.2, top - bottom + 1.0), dpi=110)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.6, right + 0.6), ylim=(bottom - 0.4, top + 0.6))
    axes.axis("off")
    if len(links) < len(everything):
        note = f"the {len(links)} strongest of {len(everything)} links"
        axes.text(0, bottom - 0.25, note, size=8, color="#555555")
    _draw_links(axes, links, places)
    for name, box in places.boxes.items():
        _draw_box(axes, name, box)
    if file is not None:
        save_figure(figure, file)
    return figure


def _draw_box(axes: Axes, name: str, box: Box) -> None:
    corner, style = (box.x, box.y - box.height), "round,pad=0,rounding_size=0.08"
    axes.add_patch(
        FancyBboxPatch(corner, WIDTH, box.height, boxstyle=style, fc=BOX, ec="#444444", lw=0.9, zorder=3)
    )
    axes.text(box.x + WIDTH / 2, box.y - 0.2, name, ha="center", va="center", size=9, weight="bold", zorder=4)
    for field in box.inputs:
        x, y = box.reading(field)
        axes.text(x + 0.08, y, field, ha="left", va="center", size=7, color="#555555", zorder=4)
    for field in box.outputs:
        x, y = box.writing(field)
        axes.text(x - 0.08, y, field, ha="right", va="center", size=7, color="#555555", zorder=4)


def _draw_links(axes: Axes, links: list[Link], places: Places) -> None:
    largest = max((abs(link.weight) for link in links), default=1.0) or 1.0
    already: dict[tuple[str, str], int] = {}
    for link in links:
        color = DEAD if link.dead else POSITIVE if link.weight >= 0 else NEGATIVE
        style = ":" if link.dead else "--" if link.hard else "-"
        width = 0.3 + 2.7 * abs(link.weight) / largest
        curve = _curve(places, link)
        axes.add_patch(PathPatch(curve, fc="none", ec=color, lw=width, ls=style, alpha=0.75, zorder=1))
        if len(links) <= MOST_LABELS:
            rank = already[link.to, link.to_field] = already.get((link.to, link.to_field), -1) + 1
            x, y = _on_last_bend(curve, 0.8 - 0.2 * rank)
            frame = {"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.8}
            text = f"{link.weight:.3g}"
            axes.text(x, y, text, size=6.5, color=color, ha="center", va="center", zorder=2, bbox=frame)


def _curve(places: Places, link: Link) -> Path:
    """Bends from point to point of the link's route; a link that goes back passes above its target."""
    points = places.route(link)
    if points[-1][0] > points[0][0]:
        corners = [points[0]]
        for start, end in pairwise(points):
            corners += _bend(start, end)
    else:
        corners = [points[0], *_over(points[0], points[-1], places.boxes[link.to].y)]
    return Path(corners, [Path.MOVETO] + [Path.CURVE4] * (len(corners) - 1))


def _bend(start: Point, end: Point) -> list[Point]:
    middle = (start[0] + end[0]) / 2
    return [(middle, start[1]), (middle, end[1]), end]


def _over(start: Point, end: Point, top: float) -> list[Point]:
    """A cubic curve rises to three quarters of the height of its two middle points."""
    height = max(start[1], end[1]) + (max(start[1], top) + 0.2 - max(start[1], end[1])) / 0.75
    return [(start[0] + 0.7, height), (end[0] - 0.7, height), end]


def _on_last_bend(curve: Path, t: float) -> Point:
    """The point at t, from 0 to 1, of the last cubic piece of the curve."""
    weights = np.array([(1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3])
    x, y = weights @ np.asarray(curve.vertices)[-4:]
    return float(x), float(y)
