"""The wiring of a machine as a graph: who reads whom, in which column to draw a neuron, who can reach the
output.

Loops are the rule here, so a column is not the longest path of neurons but of knots: the neurons of a loop
share one column.
"""

from ._layout_knots import depths
from ._machine import Machine
from ._neuron import FUNCTION


def sources(machine: Machine) -> dict[str, set[str]]:
    """For every neuron the others that it reads, by links that carry something."""
    found: dict[str, set[str]] = {name: set() for name in machine.neurons}
    for link in machine.links():
        if not link.dead and link.to != link.source:
            found[link.to].add(link.source)
    return found


def idle(machine: Machine) -> list[str]:
    """The neurons without any link (a fluid one's link to its own mix does not count)."""
    linked = set()
    for link in machine.links():
        if link.to_field != FUNCTION or link.to != link.source:
            linked |= {link.to, link.source}
    return [name for name in machine.neurons if name not in linked]


def rewires_itself(machine: Machine) -> bool:
    """Whether some neuron feeds the one that holds the matrix, so that links can appear that are not there
    yet.
    """
    return machine.matrix_from is not None and bool(sources(machine)[machine.matrix_from[0]])


def cannot_reach_output(machine: Machine) -> set[str]:
    """The neurons whose values never get to the output neuron or into the matrix. Unknown, so none, in a
    machine without an output or one that rewires itself.
    """
    if machine.output not in machine.neurons or rewires_itself(machine):
        return set()
    reads = sources(machine)
    waiting = [machine.output, *(machine.matrix_from or ())[:1]]
    reached = set(waiting)
    while waiting:
        for name in reads[waiting.pop()]:
            if name not in reached:
                reached.add(name)
                waiting.append(name)
    return set(machine.neurons) - reached


def columns(machine: Machine) -> dict[str, int]:
    """The column of every neuron, from the left: a neuron stands to the right of what it reads, but for
    loops. The output stands alone in the last one.
    """
    reads = sources(machine)
    placed = {name: depth for name, (depth, _) in depths(reads).items()}
    for name in [name for name in reads if not reads[name]]:  # a source stands just before its first reader
        readers = [placed[reader] for reader, names in reads.items() if name in names]
        placed[name] = max(min(readers, default=0) - 1, 0)
    if machine.output in placed:
        others = [place for name, place in placed.items() if name != machine.output]
        placed[machine.output] = max(others, default=-1) + 1
    return placed
