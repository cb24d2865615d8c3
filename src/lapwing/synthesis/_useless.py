"""Links that carry nothing from what a machine reads to what it answers."""

from collections.abc import Iterable

import numpy as np

from lapwing import trees
from lapwing.dmm import Machine, Neuron

from ._wiring import Wirings

Wire = tuple[str, ...]  # to, to_field, source, source_field


def useless(wirings: Wirings, kept: np.ndarray) -> np.ndarray:
    """The soft links, of those kept, whose source is always empty or whose target reaches no answer."""
    machine = wirings.student.with_options(text=wirings.examples[0].texts[0])
    links = {
        i: path[1:]
        for i, path in enumerate(wirings.paths)
        if path[0] == "matrix" and (kept[i] or not wirings.soft[i])
    }
    usable = {i: link for i, link in links.items() if {link[0], link[2]} <= machine.neurons.keys()}
    while True:
        active = _active(machine, usable.values())
        read = _read(machine.output, usable.values())
        rest = {i: link for i, link in usable.items() if link[2] in active and link[0] in read}
        if len(rest) == len(usable):
            break
        usable = rest
    found = kept & wirings.soft
    found[list(usable)] = False
    return found & np.array([path[0] == "matrix" for path in wirings.paths])


def _active(machine: Machine, links: Iterable[Wire]) -> set[str]:
    """The neurons whose outputs can be other than empty."""
    found = {
        name
        for name, neuron in machine.neurons.items()
        if name in machine.outputs or trees.max_norm(neuron({})) > 0
    }
    while True:
        fed: dict[str, set[str]] = {}
        for to, field, source, _ in links:
            if source in found:
                fed.setdefault(to, set()).add(field)
        more = {name for name, fields in fed.items() if _can_write(machine.neurons[name], fields)} - found
        if not more:
            return found
        found |= more


def _can_write(neuron: Neuron, fields: set[str]) -> bool:
    """A product needs all of its factors."""
    is_product = all(function.linearity == "multilinear" for function in neuron.functions)
    return not is_product or fields >= {*neuron.inputs}


def _read(output: str, links: Iterable[Wire]) -> set[str]:
    """The neurons from which an answer can come."""
    found = {output}
    while more := {source for to, _, source, _ in links if to in found} - found:
        found |= more
    return found
