"""Neurons that come to be during a run.

The rows of a network matrix may name neurons that the machine does not have. In a machine that can grow
(`Machine.grow`) such a neuron comes to be when its row `:function` carries a mix that is not zero, and is gone when it
carries none: like a fluid neuron, it applies the mix of functions that it reads, and passes it on.

The interpreter makes these neurons when they appear. The compiler needs all of them beforehand: `_layout.unfold` adds
every neuron that the keys of the matrix can name, and one that has not come to be is a neuron with an empty mix, whose
outputs are zero. Both count the neurons that are there and hold the machine to its capacity.
"""

from typing import TYPE_CHECKING

import jax

from lapwing import trees
from lapwing.trees import Tree

from ._activation import MachineError
from ._neuron import FUNCTION
from ._numbers import stopped

if TYPE_CHECKING:
    from ._machine import Machine


def appeared(machine: "Machine", inputs: Tree) -> list[str]:
    """The neurons that are not the machine's own and read a mix."""
    if machine.newborn is None:
        return []
    return [name for name in inputs if name not in machine.neurons and inputs[name].get(FUNCTION)]


def born(machine: "Machine", inputs: Tree) -> list[str]:
    """Those of them whose mix is not zero. Numbers that jax traces without knowing them count as zero."""
    names = appeared(machine, inputs)
    return [name for name in names if machine.newborn and _mixes(machine.newborn.names, inputs[name])]


def _mixes(names: tuple[str, ...], inputs: Tree) -> bool:
    try:
        return any(float(stopped(trees.number(inputs[FUNCTION].get(name, 0.0)))) for name in names)
    except jax.errors.ConcretizationTypeError:
        return False


def check_capacity(machine: "Machine", count: int, cycle: int) -> None:
    if machine.newborn is not None and count > machine.capacity:
        raise MachineError(
            f"in cycle {cycle} the machine has {count} neurons that came to be during the run, but its capacity is "
            f"{machine.capacity}; write m.grow(..., capacity={count}) or more, or let it grow more slowly"
        )
