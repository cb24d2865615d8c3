"""What the page gets: the drawing of the machine, and the numbers in it at a cycle.

The drawing (boxes, curves) is sent when the links change, the numbers with every message. The flow of a link is its
weight times the largest number, by size, that its source puts out.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from lapwing import trees
from lapwing.dmm import FUNCTION, Link, Machine
from lapwing.report import COLUMN, LINE, WIDTH, Drawing, arrange
from lapwing.trees import Tree

from ._session import Session

MAX_LINKS = 400  # drawn
MAX_LABELS = 60  # links, above which their weights are not written
_UNIT = 100  # of the SVG, for the inch of the layout
_MARGIN = 40
_SAVED = 0.5  # inches between two columns
_LONGEST = 200  # characters of a field's value


class Scene(NamedTuple):
    """A machine to draw, with the matrix of its next cycle."""

    machine: Machine
    links: list[Link]
    hidden: int


def scene_of(session: Session) -> Scene:
    """The neurons and the strongest links as they are now."""
    machine = session.machine
    if machine.matrix_from is not None:  # It holds its matrix itself: the links are those of now.
        born = [name for name in session.outputs if name not in machine.neurons]
        machine = machine.with_neurons({name: machine.newborn for name in born if machine.newborn})
        machine.values = {"outputs": session.outputs}
    known = machine.neurons
    every = [
        link for link in machine.links() if not link.passes_mix and link.to in known and link.source in known
    ]
    strongest = sorted(every, key=lambda link: -abs(link.weight))[:MAX_LINKS]
    return Scene(machine, sorted(strongest), len(every) - len(strongest))


def link_names(scene: Scene) -> list[dict[str, Any]]:
    """What identifies each link of a scene, as in an edit, and its name."""
    return [
        {
            "to": f"{link.to}.{link.to_field}",
            "from": f"{link.source}.{link.source_field}",
            "key": list(link.key),
            "name": f"{link.to}.{link.to_field} ← {link.origin}",
        }
        for link in scene.links
    ]


def shape_of(scene: Scene) -> Any:
    """What a drawing depends on; the weights are none of it."""
    return list(scene.machine.neurons), [(*link[:4], *link[5:]) for link in scene.links], scene.hidden


def drawing_of(scene: Scene) -> dict[str, Any]:
    """The boxes and the curves, in units of the SVG."""
    drawing = arrange(scene.machine.columns(), scene.links)
    boxes = drawing.boxes.values()
    top = max((box.y for box in boxes), default=0.0)
    # Curves that go back rise above the boxes.
    top = max([top, *(y for link in scene.links for _, y in drawing.curve(link))])
    bottom = min((box.y - box.height - LINE for box in boxes), default=0.0)
    right = _narrower(max((box.x for box in boxes), default=0.0) + WIDTH)

    def at(point: tuple[float, float]) -> list[float]:
        return [round(_narrower(point[0]) * _UNIT + _MARGIN, 1), round((top - point[1]) * _UNIT + _MARGIN, 1)]

    return {
        "width": round(right * _UNIT + 2 * _MARGIN),
        "height": round((top - bottom) * _UNIT + 2 * _MARGIN),
        "boxes": [_box(scene.machine, drawing, name, at) for name in drawing.boxes],
        "links": [
            {**named, "hard": link.hard, "dead": link.dead, "curve": list(map(at, drawing.curve(link)))}
            for link, named in zip(scene.links, link_names(scene), strict=True)
        ],
        "labels": len(scene.links) <= MAX_LABELS,
        "hidden": scene.hidden,
        "fields": _fields(scene.machine),
    }


def _narrower(x: float) -> float:
    """A place with less room between the columns: a page is narrower than a picture, and its boxes have more to say."""
    column, rest = divmod(x, COLUMN)
    return (
        column * (COLUMN - _SAVED) + min(rest, WIDTH) + max(rest - WIDTH, 0) * (1 - _SAVED / (COLUMN - WIDTH))
    )


def _box(machine: Machine, drawing: Drawing, name: str, at: Any) -> dict[str, Any]:
    box = drawing.boxes[name]
    neuron = machine.neurons[name]
    return {
        "name": name,
        "kind": "mix" if neuron.fluid else neuron.functions[0].name,
        "at": at((box.x, box.y)),
        "width": WIDTH * _UNIT,
        "height": round((box.height + LINE) * _UNIT, 1),  # with a line for the value
        "inputs": [[field, at(box.input_point(field))[1]] for field in box.inputs],
        "outputs": [[field, at(box.output_point(field))[1]] for field in box.outputs],
    }


def _fields(machine: Machine) -> dict[str, list[str]]:
    """Every field that a link can read or write."""
    neurons = machine.neurons.items()
    return {
        "to": sorted(
            f"{name}.{field}" for name, neuron in neurons for field in neuron.inputs if field != FUNCTION
        ),
        "from": sorted(
            f"{name}.{field}" for name, neuron in neurons for field in neuron.outputs if field != FUNCTION
        ),
    }


def numbers_of(scene: Scene, session: Session) -> dict[str, Any]:
    """The value in each box, and weight and flow of each link."""
    outputs = session.outputs
    largest: dict[tuple[str, ...], float] = {}
    flows = []
    for link in scene.links:
        path = link.source, link.source_field, *link.key
        if path not in largest:
            largest[path] = _largest(_part(outputs, path))
        flows.append([float(link.weight), float(link.weight) * largest[path]])
    inputs = session.last.inputs if session.last else {}
    return {
        "values": {name: _value(scene.machine, name, outputs, inputs) for name in scene.machine.neurons},
        "flows": flows,
    }


def _part(value: Any, path: Iterable[str]) -> Any:
    """What a tree has at a path; the empty tree if nothing."""
    for key in path:
        value = value.get(key, {}) if isinstance(value, dict) else {}
    return value


def _largest(value: Any) -> float:
    """The leaf that is the largest by size, with its sign.

    >>> _largest({"a": -3.0, "b": 2.0}), _largest({})
    (-3.0, 0.0)
    """
    return max((float(leaf) for leaf in trees.paths(value).values()), key=abs, default=0.0)


def _value(machine: Machine, name: str, outputs: Tree, inputs: Tree) -> str:
    """The outputs of a neuron as short text; the inputs of one that has none."""
    neuron = machine.neurons[name]
    tree = outputs.get(name, {}) if neuron.outputs else inputs.get(name, {})
    fields = [field for field in (neuron.outputs or neuron.inputs) if field != FUNCTION]
    if machine.matrix_from is not None and name == machine.matrix_from[0]:
        return f"{trees.count(tree.get(machine.matrix_from[1], {}))} links"
    texts = {field: show_value(tree.get(field, {})) for field in fields}
    shown = [text if len(fields) == 1 else f"{field} {text}" for field, text in texts.items()]
    return "  ".join(shown)


def show_value(value: Any, longest: int = _LONGEST) -> str:
    """A V-value as short text. Zeros are left out, as they mean the same as a missing key.

    >>> show_value({":number": 2.5}), show_value({"t": 2.0, " ": 1.0, "e": 0.0}), show_value({})
    ('2.5', '␣ 1 t 2', '0')
    """
    leaves = {path: float(leaf) for path, leaf in trees.paths(trees.as_tree(value)).items() if leaf != 0}
    parts = _parts(leaves)
    text = ""
    for done, part in enumerate(parts):
        if len(text) + len(part) > longest:
            return f"{text} … {len(parts) - done} more".strip()
        text = f"{text} {part}".strip()
    return text or "0"


def _parts(leaves: Mapping[tuple[str, ...], float]) -> list[str]:
    return [f"{_keys(path)} {leaf:.4g}".strip() for path, leaf in leaves.items()]


def _keys(path: Iterable[str]) -> str:
    return "/".join("␣" if key == " " else key for key in path if key != ":number")
