"""The reference: runs a machine cycle by cycle on trees, exactly as it is defined, without any optimization.

With floats in the machine it computes in double precision; with jax numbers (`machine.with_values(tree of tracers)`)
it can be differentiated. The compiler is tested against this file.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from lapwing import trees
from lapwing.core import suggestion
from lapwing.trees import Tree

from ._activation import MachineError
from ._checks import check_cycles, split_address
from ._growth import appeared, born, check_capacity
from ._machine import Machine, check_machine


class Cycle(NamedTuple):
    """The matrix and the inputs of a down stroke, and the outputs of the up stroke.

    >>> from lapwing import dmm
    >>> first, *_ = dmm.interpret(dmm.duplicate_detector(), cycles=2, text="aab").cycles
    >>> first.outputs["input"]
    {'char': {'a': 1.0}}
    """

    matrix: Tree
    inputs: Tree
    outputs: Tree


@dataclass(frozen=True)
class Trace:
    """Every cycle of a run.

    >>> from lapwing import dmm
    >>> trace = dmm.interpret(dmm.duplicate_detector(), cycles=15, text="aab")
    >>> trace.answers["dict-1"][-1], trace.outputs("accum.dict")[-1], len(trace.cycles)
    (1.0, {'a': 2.0}, 15)
    """

    machine: Machine
    cycles: list[Cycle]

    @property
    def answers(self) -> dict[str, list[Any]]:
        """The input fields of the output neuron after each down stroke, as numbers."""
        name = self.machine.output
        if name not in self.machine.neurons:
            raise MachineError(
                f"the machine has no output neuron {name!r}; {suggestion(name, self.machine.neurons)}; "
                "name the neuron that answers with Machine(output=...)"
            )
        return {
            field: [trees.number(value) for value in self.inputs(f"{name}.{field}")]
            for field in self.machine.neurons[name].inputs
        }

    @property
    def born(self) -> list[tuple[str, ...]]:
        """The neurons that came to be during the run (`Machine.grow`) and are there, cycle by cycle."""
        return [tuple(born(self.machine, cycle.inputs)) for cycle in self.cycles]

    def inputs(self, address: str) -> list[Any]:
        """The V-values of an input field (`"norm.dict"`), cycle by cycle."""
        return self._history(address, lambda cycle: cycle.inputs)

    def outputs(self, address: str) -> list[Any]:
        """The V-values of an output field (`"accum.dict"`), cycle by cycle."""
        return self._history(address, lambda cycle: cycle.outputs)

    def _history(self, address: str, side: Callable[[Cycle], Tree]) -> list[Any]:
        name, field = split_address(address)
        known = [
            *self.machine.neurons,
            *(each for cycle in self.cycles for each in appeared(self.machine, cycle.inputs)),
        ]
        if name not in known:
            raise MachineError(f"there is no neuron {name!r}; {suggestion(name, known)}")
        return [side(cycle).get(name, {}).get(field, {}) for cycle in self.cycles]


def interpret(machine: Machine, cycles: int, **options: Any) -> Trace:
    """Runs the machine for N cycles and returns every cycle.

    **Arguments**: `options` are set for every activation that has them: `text`, `governor`, `accumulator_gradient`
    ("full" or "truncated"), `norm_ties` ("shared" or "last"), and those of your own activations.

    >>> from lapwing import dmm
    >>> trace = dmm.interpret(dmm.duplicate_detector(), cycles=15, text="aab")
    >>> trace.inputs("accum.dict-2")[:2], trace.answers["dict-1"][-8:]
    ([{}, {'a': 1.0}], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    """
    cycles = check_cycles(cycles)
    machine = check_machine(machine).with_options(**options)
    outputs = machine.outputs
    done = []
    for number in range(1, cycles + 1):
        done.append(step(machine, outputs, number))
        outputs = done[-1].outputs
    return Trace(machine, done)


def step(machine: Machine, outputs: Tree, number: int = 1) -> Cycle:
    """Returns the cycle after these outputs; the first cycle comes after `machine.outputs`. Its number is for messages.

    >>> from lapwing import dmm
    >>> machine = dmm.duplicate_detector().with_options(text="aab")
    >>> first = dmm.step(machine, machine.outputs)
    >>> first.outputs["input"], dmm.step(machine, first.outputs).inputs["accum"]["dict-2"]
    ({'char': {'a': 1.0}}, {'a': 1.0})
    """
    matrix = current_matrix(machine, outputs)
    inputs = down(matrix, outputs)
    check_capacity(machine, len(born(machine, inputs)), number)
    return Cycle(matrix, inputs, up(machine, inputs))


def current_matrix(machine: Machine, outputs: Tree) -> Tree:
    """The matrix of the next down stroke: an output in a self-modifying machine, otherwise fixed."""
    if machine.matrix_from is None:
        return machine.matrix
    name, field = machine.matrix_from
    return outputs.get(name, {}).get(field, {})


def down(matrix: Tree, outputs: Tree) -> Tree:
    """Every input field is the sum of output fields, weighted by its row of the matrix."""
    return {
        name: {field: trees.as_tree(trees.lincomb(row, outputs)) for field, row in rows.items()}
        for name, rows in matrix.items()
    }


def up(machine: Machine, inputs: Tree) -> Tree:
    """Every neuron applies its activation to its inputs, and so do those that have come to be."""
    neurons = {**machine.neurons, **dict.fromkeys(appeared(machine, inputs), machine.newborn)}
    return {name: neuron(inputs.get(name, {})) for name, neuron in neurons.items() if neuron}
