"""Links that carry nothing from what a machine reads to what it answers."""

import numpy as np

from ._synthesis_wiring import Wirings


def useless(wirings: Wirings, kept: np.ndarray) -> np.ndarray:
    """The soft links, of those kept, whose source is never anything but empty, or whose target reaches no answer."""
    machine = wirings.student
    links = [
        (i, path[1:])
        for i, path in enumerate(wirings.paths)
        if path[0] == "matrix" and (kept[i] or not wirings.soft[i])
    ]
    alive = {i: link for i, link in links if link[0] in machine.neurons and link[2] in machine.neurons}
    while True:
        speaking = _speaking(wirings, alive.values())
        heard = _heard(machine.output, alive.values())
        usable = {i: link for i, link in alive.items() if link[2] in speaking and link[0] in heard}
        if len(usable) == len(alive):
            break
        alive = usable
    found = kept & wirings.soft
    found[list(alive)] = False
    return found & np.array([path[0] == "matrix" for path in wirings.paths])


def _speaking(wirings: Wirings, links) -> set[str]:
    """The neurons whose outputs can be other than empty: those that need nothing, and those whose fields are fed."""
    machine = wirings.student
    links = list(links)
    found = {name for name, neuron in machine.neurons.items() if not neuron.inputs or name in machine.outputs}
    found |= {link[0] for link in links if link[0] == link[2] == "timer"}
    while True:
        fed: dict[str, set[str]] = {}
        for to, field, source, _ in links:
            if source in found:
                fed.setdefault(to, set()).add(field)
        more = {name for name, fields in fed.items() if _can_speak(machine.neurons[name], fields)} - found
        if not more:
            return found
        found |= more


def _can_speak(neuron, fields: set[str]) -> bool:
    """A product needs both of its factors."""
    kinds = {function.basis or function.name for function in neuron.functions}
    return kinds != {"dot"} or fields >= {*neuron.inputs}


def _heard(output: str, links) -> set[str]:
    found = {output}
    links = list(links)
    while True:
        more = {source for to, _, source, _ in links if to in found} - found
        if not more:
            return found
        found |= more
