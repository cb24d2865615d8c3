"""A picture of a loop before and after it was rewritten: which product runs where, and so how often.

It is drawn from what `lapwing.explain` returns, as an object or as its JSON: this layer does not import jax, and a
picture can be made where the loop itself cannot run. Two columns of equal boxes show before and after, with a dashed
outline where a product was and is no more. All coordinates are in inches: the figure is as high as the products need.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from lapwing.core import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Of equal lightness, so that text is equally readable on all; grey is for recomputed products.
COLORS = {
    "value": "#9ecae9",
    "gradient of the operand": "#ffcf8f",
    "gradient of the weight": "#f4a6a0",
    "computed again": "#cfcfcf",
}
PANELS = {"before": "as written", "after": "rewritten"}
PLACES = {
    "forward loop": ("forward loop", "in the forward loop", "in every step"),
    "backward loop": ("backward loop", "in the backward loop", "in every step"),
    "once": ("outside", "outside", "once"),
}
"""Place in a row -> title of its box, key of its count, and how often a product there runs."""

WIDTH, MARGIN, PANEL_GAP, BOX_GAP = 4.5, 0.25, 0.4, 0.16
HEAD, BOX_HEAD, LINE, BOX_FOOT, FOOT = 0.95, 0.42, 0.29, 0.1, 0.4
# Letters of a name that fit next to the text on its right.
ROOM, ROOM_OF_MOVED = 28, 20


class Explained(Protocol):
    def to_json(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Item:
    """A product, or several merged into one; or, with `moved`, where one was before."""

    sites: tuple[str, ...]
    role: str
    moved: str = ""


def loop_picture(explanation: Explained | Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Draw where the products of a loop's gradient run, as written and rewritten.

    **Arguments**

    - `explanation`: what `lapwing.explain` returns, or its JSON.
    - `path`: the file; its suffix is the format (.png, .svg, .pdf).

    A product is named by its line and column in the source. **Raises** a ValueError if there is no product.

    >>> import tempfile
    >>> row = {"site": "rnn.py:4:9", "role": "gradient of the weight", "before": "backward loop", "after": "once"}
    >>> count = {"in the forward loop": 0, "in the backward loop": 1, "outside": 0}
    >>> story = {"rows": [row], "loop_products": {"before": count, "after": count}, "memory": None}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     loop_picture(story, f"{folder}/loop.png")
    """
    story = explanation if isinstance(explanation, Mapping) else explanation.to_json()
    _figure(story).savefig(path, dpi=150)


def _figure(story: Mapping[str, Any]) -> "Figure":
    if not story["rows"]:
        raise ValueError(
            "expected an explanation with a product to draw, found none; explain a function that has a loop "
            "with a matrix product in it"
        )
    boxes = {(panel, place): items_in(story["rows"], panel, place) for panel in PANELS for place in PLACES}
    lines = {place: max(1, *(len(boxes[panel, place]) for panel in PANELS)) for place in PLACES}
    heights = {place: BOX_HEAD + count * LINE + BOX_FOOT for place, count in lines.items()}
    width = 2 * MARGIN + 2 * WIDTH + PANEL_GAP
    height = HEAD + sum(heights.values()) + BOX_GAP * len(heights) + FOOT
    figure = new_figure(width, height, layout=None)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    for number, panel in enumerate(PANELS):
        left, top = MARGIN + number * (WIDTH + PANEL_GAP), HEAD
        _draw_head(axes, left, story, panel)
        for place, tall in heights.items():
            count = story["loop_products"][panel][PLACES[place][1]]
            _draw_box(axes, (left, top), tall, place, count, boxes[panel, place])
            top += tall + BOX_GAP
    axes.text(MARGIN, height - FOOT / 2, _footnote(story["rows"]), fontsize=9, color="0.35")
    return figure


def items_in(rows: Sequence[Mapping[str, Any]], panel: str, place: str) -> list[Item]:
    """The items of a box, by role and source line. Rows merged with each other are one item."""
    several_files = len({_file(row["site"]) for row in rows}) > 1
    found = set()
    for row in rows:
        prefix = f"{_file(row['site'])}:" if several_files else ""
        places, partners = _places(row[panel])
        columns = sorted([_column(row["site"]), *partners], key=_parts)
        if place in places:
            found.add(Item((prefix + columns[0], *columns[1:]), row["role"]))
        elif panel == "after" and place in _places(row["before"])[0]:
            target = " and ".join(PLACES[there][0] for there in places) or "not needed"
            found.add(Item((prefix + _column(row["site"]),), row["role"], moved=target))
    return sorted(
        found, key=lambda item: (list(COLORS).index(item.role), [_parts(site) for site in item.sites])
    )


def _places(text: str) -> tuple[list[str], list[str]]:
    """The places of a row's products, and what they are merged with."""
    where, _, others = text.partition(", merged with ")
    return [place for place in where.split(" and ") if place in PLACES], others.split(", ") if others else []


def _draw_head(axes: "Axes", left: float, story: Mapping[str, Any], panel: str) -> None:
    from matplotlib.ticker import EngFormatter

    counts = story["loop_products"][panel]
    loops = sum(counts[PLACES[place][1]] for place in PLACES if place != "once")
    below = f"{_products(loops)} in every step"
    if story["memory"]:
        below += f", {EngFormatter('B', places=1)(story['memory'][panel])} of temporary memory"
    axes.text(left, 0.4, PANELS[panel], fontsize=15, fontweight="bold", va="center")
    axes.text(left, 0.72, below, fontsize=10, color="0.35", va="center")


def _draw_box(
    axes: "Axes", corner: tuple[float, float], height: float, place: str, count: int, items: list[Item]
) -> None:
    left, top = corner
    title, _, frequency = PLACES[place]
    loops = place != "once"
    _rectangle(axes, corner, (WIDTH, height), face="white", edge="0.25" if loops else "0.6", dashed=not loops)
    middle = top + BOX_HEAD / 2
    axes.text(left + 0.14, middle, title, fontsize=11.5, fontweight="bold", va="center")
    said = f"{_products(count)} {frequency}" if count else "none"
    axes.text(left + WIDTH - 0.14, middle, said, fontsize=9.5, color="0.35", ha="right", va="center")
    for number, item in enumerate(items):
        _draw_item(axes, (left + 0.12, top + BOX_HEAD + number * LINE), item)


def _draw_item(axes: "Axes", corner: tuple[float, float], item: Item) -> None:
    left, top = corner
    color, size = COLORS[item.role], (WIDTH - 0.24, LINE - 0.05)
    _rectangle(axes, corner, size, "white" if item.moved else color, color, dashed=bool(item.moved))
    middle, ink = top + size[1] / 2, "0.5" if item.moved else "black"
    name = _name(item.sites, ROOM_OF_MOVED if item.moved else ROOM)
    axes.text(left + 0.1, middle, name, fontsize=9.5, family="monospace", va="center", color=ink)
    what = f"{item.role} → {item.moved}" if item.moved else item.role
    axes.text(left + size[0] - 0.1, middle, what, fontsize=9.5, ha="right", va="center", color=ink)


def _name(sites: tuple[str, ...], room: int) -> str:
    """As many sites as fit in the room, and the number of others."""
    text = " + ".join(sites)
    for left_out in range(1, len(sites)):
        if len(text) > room:
            text = " + ".join([*sites[:-left_out], f"{left_out} more"])
    return text if len(text) <= room else "…" + text[1 - room :]


def _footnote(rows: Sequence[Mapping[str, Any]]) -> str:
    files = ", ".join(sorted({_file(row["site"]) for row in rows}))
    merged = any("merged" in row["after"] for row in rows)
    return f"Products are named by line:column in {files}" + (
        "; a + b is one product in place of both." if merged else "."
    )


def _rectangle(
    axes: "Axes",
    corner: tuple[float, float],
    size: tuple[float, float],
    face: str,
    edge: str = "none",
    dashed: bool = False,
) -> None:
    from matplotlib.patches import FancyBboxPatch

    shape = "round,pad=0,rounding_size=0.06"
    style = "--" if dashed else "-"
    axes.add_patch(FancyBboxPatch(corner, *size, shape, facecolor=face, edgecolor=edge, linestyle=style))


def _products(count: int) -> str:
    return f"{count} product" + ("" if count == 1 else "s")


def _file(site: str) -> str:
    return _parts(site)[0].rsplit("/", 1)[-1] or "unknown"


def _column(site: str) -> str:
    """Line and column of a site."""
    return ":".join(map(str, _parts(site)[1])) or "?"


def _parts(site: str) -> tuple[str, list[int]]:
    """File, line and column, where known: not all code comes from a file."""
    file = re.sub(r"(:?\b\d+){0,2}$", "", site)
    return file, [int(number) for number in site[len(file) :].split(":") if number]
