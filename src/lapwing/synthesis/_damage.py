"""Broken machines: some links of a machine removed, rewired or scaled, by a random key."""

from typing import Literal, get_args

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from lapwing import trees
from lapwing.dmm import Link, Machine, MachineError

Damage = Literal["removed", "rewired", "scaled"]
"""The kinds of damage to a machine: a link removed, one from another field, one of another weight."""
LEAST, MOST = 1.5, 4.0  # the factor of a scaled link, or one divided by it


def damaged(machine: Machine, key: PRNGKeyArray, count: int = 1, kind: Damage = "removed") -> Machine:
    """Returns the machine with `count` of its soft links broken.

    **Arguments**

    - `key`: decides which links, and how.
    - `kind`: "removed"; "rewired": the link reads another output field, which may be of any neuron but the clock;
      "scaled": its weight is multiplied or divided by 1.5 to 4, and one in four changes its sign.

    >>> from lapwing import dmm
    >>> broken = damaged(dmm.duplicate_detector(), jax.random.key(0), 2, "removed")
    >>> len(broken.links())
    9
    """
    if kind not in get_args(Damage):
        raise MachineError(f"a link can be {', '.join(get_args(Damage))}, but the kind is {kind!r}")
    links = [link for link in machine.links() if not link.hard]
    if not 1 <= count <= len(links):
        raise MachineError(
            f"expected to break 1 to {len(links)} of the machine's soft links, but the count is {count}"
        )
    draw = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    values = trees.paths(machine.values)
    for i in draw.choice(len(links), count, replace=False):
        link = links[i]
        weight = values.pop(_path(machine, link))
        if kind == "rewired":
            values[_rewired(machine, link, values, draw)] = weight
        elif kind == "scaled":
            factor = np.exp(draw.uniform(np.log(LEAST), np.log(MOST)))
            signs = 1.0 if draw.random() < 0.75 else -1.0
            values[_path(machine, link)] = float(
                weight * signs * (factor if draw.random() < 0.5 else 1 / factor)
            )
    return with_links(machine, values)


def _path(machine: Machine, link: Link) -> trees.Path:
    return (*machine.matrix_path, link.to, link.to_field, link.source, link.source_field)


def _rewired(
    machine: Machine, link: Link, values: dict[trees.Path, float], draw: np.random.Generator
) -> trees.Path:
    """Where the link goes: another source for its field, that is not linked there."""
    old = _path(machine, link)
    free = [(*old[:-2], *source) for source in sources(machine, link.to)]
    free = [path for path in free if path != old and path not in values]
    if not free:
        raise MachineError(f"the field {link.to}.{link.to_field} reads all outputs; it cannot be rewired")
    return free[draw.integers(len(free))]


def sources(machine: Machine, to: str) -> list[tuple[str, str]]:
    """The output fields that a neuron may read: all but those of the clock, which only times the reading of the text.
    Where the matrix of a self-modifying machine is summed up, only what has its form: itself, and constant changes."""
    readers = {
        n for n, neuron in machine.neurons.items() if any("text" in f.options for f in neuron.functions)
    }
    clocks = {link.source for link in machine.links() if link.hard and link.to in readers}
    fields = [
        (name, field)
        for name, neuron in sorted(machine.neurons.items())
        if name not in clocks
        for field in sorted(neuron.outputs)
    ]
    if machine.matrix_from is None or to != machine.matrix_from[0]:
        return fields
    return [field for field in fields if field == machine.matrix_from or _is_change(machine, *field)]


def _is_change(machine: Machine, name: str, field: str) -> bool:
    """Whether an output is, without any input, a tree of links between neurons of the machine."""
    paths = trees.paths(machine.neurons[name]({}).get(field, {}))
    return bool(paths) and all(len(p) == 4 and {p[0], p[2]} <= machine.neurons.keys() for p in paths)


def with_links(machine: Machine, values: dict[trees.Path, float]) -> Machine:
    """The machine with these values, among which may be links that it does not have."""
    made = Machine(output=machine.output)
    made.matrix_from = machine.matrix_from
    made.neurons = dict(machine.neurons)
    made.hard = machine.hard & values.keys()
    made.values = {**{key: {} for key in machine.values}, **trees.from_paths(values)}
    return made


def with_candidates(machine: Machine) -> Machine:
    """The machine with a link of weight 0 wherever training may add one: from all sources to every input field that no
    hard link feeds."""
    values = trees.paths(machine.values)
    fixed = {(link.to, link.to_field) for link in machine.links() if link.hard}
    for name, neuron in machine.neurons.items():
        for field in neuron.inputs:
            if (name, field) not in fixed:
                for source in sources(machine, name):
                    values.setdefault((*machine.matrix_path, name, field, *source), 0.0)
    return with_links(machine, values)
