"""Where the boxes and the links of a machine's drawing go.

Boxes form columns. A link that passes a column gets a lane there, ordered among the boxes like one of them, and does
not run behind them. Each column is ordered by the mean height of what it reads from the columns before, which keeps
crossings few.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

COLUMN = 3.0
"""The distance of two columns, in inches."""
WIDTH = 1.6
"""The width of a box, in inches."""
LINE = 0.26
"""The height of a line in a box, in inches."""
GAP, LANE = 0.42, 0.22  # below a box, and below a lane

MAX_BOXES = 12  # in one column, before it continues in the next
MAX_LANES = 60  # links, above which lanes only make the drawing taller

Point = tuple[float, float]
Link = Any  # a `dmm.Link`; this layer does not import jax, so it does not import machines
Lane = tuple[str, str, int]  # the neuron and field that it comes from, and the column that it passes


@dataclass(frozen=True)
class Box:
    """The upper left corner of a neuron, and the fields on its two sides."""

    x: float
    y: float
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def height(self) -> float:
        return LINE * (1.4 + max(len(self.inputs), len(self.outputs), 1))

    def input_point(self, field: str) -> Point:
        return self.x, self.y - LINE * (1.75 + self.inputs.index(field))

    def output_point(self, field: str) -> Point:
        return self.x + WIDTH, self.y - LINE * (1.75 + self.outputs.index(field))


@dataclass
class Drawing:
    """The boxes by name, and the height of each lane.

    >>> from lapwing import dmm
    >>> machine = dmm.Machine.load("parity")
    >>> drawing = arrange(machine.columns(), machine.links())
    >>> sorted(drawing.boxes) == sorted(machine.neurons), len(drawing.route(machine.links()[0]))
    (True, 2)
    """

    column: dict[str, int]
    boxes: dict[str, Box]
    lanes: dict[Lane, float]

    def route(self, link: Link) -> list[Point]:
        """The points of a link from left to right: its two ends, and both ends of each lane between them."""
        points = [self.boxes[link.source].output_point(link.source_field)]
        for column in range(self.column[link.source] + 1, self.column[link.to]):
            height = self.lanes.get((link.source, link.source_field, column))
            if height is not None:
                points += [(column * COLUMN, height), (column * COLUMN + WIDTH, height)]
        return [*points, self.boxes[link.to].input_point(link.to_field)]

    def curve(self, link: Link) -> list[Point]:
        """The corners of cubic curves along the route; a link that goes back passes above its target."""
        points = self.route(link)
        if points[-1][0] <= points[0][0]:
            return [points[0], *_over(points[0], points[-1], self.boxes[link.to].y)]
        return [points[0], *(corner for start, end in pairwise(points) for corner in _bend(start, end))]

    def height_before(self, link: Link, column: int) -> float | None:
        """The height at which a link reaches a column, None if it comes from the right."""
        lane = self.lanes.get((link.source, link.source_field, column - 1))
        if lane is not None:
            return lane
        box = self.boxes.get(link.source)
        return box.output_point(link.source_field)[1] if box else None


def _bend(start: Point, end: Point) -> list[Point]:
    middle = (start[0] + end[0]) / 2
    return [(middle, start[1]), (middle, end[1]), end]


def _over(start: Point, end: Point, top: float) -> list[Point]:
    """A cubic curve rises to three quarters of the height of its two middle points."""
    height = max(start[1], end[1]) + (max(start[1], top) + 0.2 - max(start[1], end[1])) / 0.75
    return [(start[0] + 0.7, height), (end[0] - 0.7, height), end]


def arrange(columns: Mapping[str, int], links: list[Link]) -> Drawing:
    """Places a box for each neuron, given its column, and lanes for every long link.

    >>> from lapwing import dmm
    >>> machine = dmm.Machine.load("parity")
    >>> drawing = arrange(machine.columns(), machine.links())
    >>> [round(number) for number in drawing.boxes["output"].input_point("dict-1")]
    [12, 0]
    """
    drawing = Drawing(_split_columns(columns), {}, {})
    passing = _passing(links, drawing.column) if len(links) <= MAX_LANES else {}
    for column in range(max(drawing.column.values(), default=-1) + 1):
        _fill(drawing, column, links, passing.get(column, {}))
        _center(drawing, column)
    return drawing


def _split_columns(columns: Mapping[str, int]) -> dict[str, int]:
    """The columns without empty ones, the long ones split into several."""
    result: dict[str, int] = {}
    last = -1
    for column in sorted(set(columns.values())):
        names = sorted(name for name in columns if columns[name] == column)
        for number, name in enumerate(names):
            result[name] = last + 1 + number // MAX_BOXES
        last = result[names[-1]]
    return result


def _passing(links: list[Link], column: dict[str, int]) -> dict[int, dict[Lane, list[Link]]]:
    """The lanes in each column, with the links that use them."""
    found: dict[int, dict[Lane, list[Link]]] = {}
    for link in links:
        for passed in range(column[link.source] + 1, column[link.to]):
            lane = (link.source, link.source_field, passed)
            found.setdefault(passed, {}).setdefault(lane, []).append(link)
    return found


def _fill(drawing: Drawing, column: int, links: list[Link], lanes: dict[Lane, list[Link]]) -> None:
    names = sorted(name for name, its in drawing.column.items() if its == column)
    readers = {name: [link for link in links if link.to == name] for name in names}
    order = sorted(
        [*readers.items(), *lanes.items()],
        key=lambda item: -_mean(drawing.height_before(link, column) for link in item[1]),
    )
    y = 0.0
    for item, _ in order:
        if isinstance(item, str):
            box = Box(column * COLUMN, y, *_used_fields(item, links))
            drawing.boxes[item] = box
            y -= box.height + GAP
        else:
            drawing.lanes[item] = y
            y -= LANE


def _mean(heights: Iterable[float | None]) -> float:
    known = [height for height in heights if height is not None]
    return sum(known) / len(known) if known else 0.0


def _used_fields(name: str, links: list[Link]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    inputs = dict.fromkeys(link.to_field for link in links if link.to == name)
    outputs = dict.fromkeys(link.source_field for link in links if link.source == name)
    return tuple(inputs), tuple(outputs)


def _center(drawing: Drawing, column: int) -> None:
    """Shifts a column so that its middle is at height 0."""
    names = [name for name, its in drawing.column.items() if its == column]
    lanes = [lane for lane in drawing.lanes if lane[2] == column]
    lows = [drawing.boxes[n].y - drawing.boxes[n].height for n in names]
    shift = -min([*lows, *(drawing.lanes[lane] for lane in lanes)], default=0.0) / 2
    for name in names:
        drawing.boxes[name] = replace(drawing.boxes[name], y=drawing.boxes[name].y + shift)
    for lane in lanes:
        drawing.lanes[lane] += shift
