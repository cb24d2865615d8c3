"""Where the boxes and the links of a machine's picture go.

Boxes stand in columns. A link that passes over a column gets a lane of its own there, ordered among the boxes
as if it were one, so that it does not run behind them. In every column the order is that of the mean height
of what is read from the columns before, which keeps crossings few.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ._graph import columns, idle
from ._machine import Link, Machine

# In inches.
COLUMN = 3.0  # from one column to the next
WIDTH, LINE = 1.6, 0.26  # of a box, and the height of a line in it
GAP, LANE = 0.42, 0.22  # below a box, and below a lane

TALLEST = 12  # boxes in one column before it continues in the next
MOST_LANES = 60  # links, above which lanes would only make the picture taller

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """Where a neuron stands (its upper left corner), and the fields on its two sides."""

    x: float
    y: float
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def height(self) -> float:
        return LINE * (1.4 + max(len(self.inputs), len(self.outputs), 1))

    def reading(self, field: str) -> Point:
        return self.x, self.y - LINE * (1.75 + self.inputs.index(field))

    def writing(self, field: str) -> Point:
        return self.x + WIDTH, self.y - LINE * (1.75 + self.outputs.index(field))


Lane = tuple[str, str, int]  # the neuron and field that it comes from, and the column that it passes


@dataclass
class Places:
    """Where everything stands: boxes by name, and the height of each lane."""

    column: dict[str, int]
    boxes: dict[str, Box]
    lanes: dict[Lane, float]

    def route(self, link: Link) -> list[Point]:
        """The points of a link from left to right: its two ends, and both ends of each lane between them."""
        points = [self.boxes[link.source].writing(link.source_field)]
        for column in range(self.column[link.source] + 1, self.column[link.to]):
            height = self.lanes.get((link.source, link.source_field, column))
            if height is not None:
                points += [(column * COLUMN, height), (column * COLUMN + WIDTH, height)]
        return [*points, self.boxes[link.to].reading(link.to_field)]

    def height_before(self, link: Link, column: int) -> float | None:
        """The height at which a link comes to a column, None if it comes from the right."""
        lane = self.lanes.get((link.source, link.source_field, column - 1))
        if lane is not None:
            return lane
        box = self.boxes.get(link.source)
        return box.writing(link.source_field)[1] if box else None


def arrange(machine: Machine, links: list[Link]) -> Places:
    """Gives every neuron that has links its box, and every long link its lanes."""
    without = set(idle(machine))
    places = Places(_split({n: c for n, c in columns(machine).items() if n not in without}), {}, {})
    passing = _passing(links, places.column) if len(links) <= MOST_LANES else {}
    for column in range(max(places.column.values(), default=-1) + 1):
        _fill(places, column, links, passing.get(column, {}))
        _center(places, column)
    return places


def _split(column: dict[str, int]) -> dict[str, int]:
    """The columns without empty ones, and with the overlong ones in several."""
    result: dict[str, int] = {}
    last = -1
    for place in sorted(set(column.values())):
        names = sorted(name for name in column if column[name] == place)
        for number, name in enumerate(names):
            result[name] = last + 1 + number // TALLEST
        last = result[names[-1]]
    return result


def _passing(links: list[Link], column: dict[str, int]) -> dict[int, dict[Lane, list[Link]]]:
    """The lanes in each column, with the links that use them."""
    found: dict[int, dict[Lane, list[Link]]] = {}
    for link in links:
        for place in range(column[link.source] + 1, column[link.to]):
            lane = (link.source, link.source_field, place)
            found.setdefault(place, {}).setdefault(lane, []).append(link)
    return found


def _fill(places: Places, column: int, links: list[Link], lanes: dict[Lane, list[Link]]) -> None:
    names = sorted(name for name, place in places.column.items() if place == column)
    readers = {name: [link for link in links if link.to == name] for name in names}
    order = sorted(
        [*readers.items(), *lanes.items()],
        key=lambda item: -_mean(places.height_before(link, column) for link in item[1]),
    )
    y = 0.0
    for thing, _ in order:
        if isinstance(thing, str):
            box = Box(column * COLUMN, y, *_used_fields(thing, links))
            places.boxes[thing] = box
            y -= box.height + GAP
        else:
            places.lanes[thing] = y
            y -= LANE


def _mean(heights: Iterable[float | None]) -> float:
    known = [height for height in heights if height is not None]
    return sum(known) / len(known) if known else 0.0


def _used_fields(name: str, links: list[Link]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    inputs = dict.fromkeys(link.to_field for link in links if link.to == name)
    outputs = dict.fromkeys(link.source_field for link in links if link.source == name)
    return tuple(inputs), tuple(outputs)


def _center(places: Places, column: int) -> None:
    """Shifts a column so that its middle is at height 0."""
    boxes = [name for name, place in places.column.items() if place == column]
    lanes = [lane for lane in places.lanes if lane[2] == column]
    lows = [places.boxes[n].y - places.boxes[n].height for n in boxes] + [
        places.lanes[lane] for lane in lanes
    ]
    shift = -min(lows, default=0.0) / 2
    for name in boxes:
        places.boxes[name] = replace(places.boxes[name], y=places.boxes[name].y + shift)
    for lane in lanes:
        places.lanes[lane] += shift
