"""The links of a machine as a graph: what reads what, in which column to draw a neuron, what reaches the output.

Machines have loops, so a column is the depth in the graph of strongly connected components: the neurons of a loop
share one.
"""

from typing import TYPE_CHECKING

from ._components import depths

if TYPE_CHECKING:
    from ._machine import Machine


def sources(machine: "Machine") -> dict[str, set[str]]:
    """For every neuron the others that it reads, by links that are not dead."""
    found: dict[str, set[str]] = {name: set() for name in machine.neurons}
    for link in machine.links():
        if not link.dead and link.to != link.source:
            found[link.to].add(link.source)
    return found


def idle(machine: "Machine") -> list[str]:
    """The neurons without links; a link that passes a mix does not count."""
    linked = {name for link in machine.links() if not link.passes_mix for name in (link.to, link.source)}
    return [name for name in machine.neurons if name not in linked]


def rewires_itself(machine: "Machine") -> bool:
    """Whether some neuron feeds the one that holds the matrix, so that new links can appear."""
    return machine.matrix_from is not None and bool(sources(machine)[machine.matrix_from[0]])


def cannot_reach_output(machine: "Machine") -> set[str]:
    """The neurons whose values never reach the output neuron or the matrix. None are known in a machine without an
    output, or in one that rewires itself.
    """
    if machine.output not in machine.neurons or rewires_itself(machine):
        return set()
    reads = sources(machine)
    waiting = [machine.output, *(machine.matrix_from or ())[:1]]
    reached = set(waiting)
    while waiting:
        new = reads[waiting.pop()] - reached
        reached |= new
        waiting += new
    return set(machine.neurons) - reached


def columns(machine: "Machine") -> dict[str, int]:
    """See `Machine.columns`."""
    reads = sources(machine)
    column = {name: depth for name, (depth, _) in depths(reads).items()}
    for name in [name for name in reads if not reads[name]]:  # A source is just left of its first reader.
        readers = [column[reader] for reader, names in reads.items() if name in names]
        column[name] = max(min(readers, default=0) - 1, 0)
    if machine.output in column:
        others = [depth for name, depth in column.items() if name != machine.output]
        column[machine.output] = max(others, default=-1) + 1
    return column
