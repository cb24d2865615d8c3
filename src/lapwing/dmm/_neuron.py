"""A neuron: one activation function, or (superfluid) a weighted mix of several."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lapwing import trees
from lapwing.trees import Tree

from ._activation import Activation

FUNCTION = ":function"
"""The field of a neuron from which its activation is read, in a machine that changes itself."""


@dataclass(frozen=True)
class Neuron:
    """One activation; or, if fluid, a mix of several, weighted by the input field `:function`.

    >>> from lapwing import dmm
    >>> neuron = dmm.Neuron((dmm.dot, dmm.norm), fluid=True)
    >>> neuron.names, neuron.inputs
    (('dot', 'norm'), ('dict-1', 'dict-2', 'dict', ':function'))
    >>> neuron({":function": {"norm": 0.5}, "dict": {"a": 3.0}})
    {'norm': {':number': 1.5}, ':function': {'norm': 0.5}}
    """

    functions: tuple[Activation, ...]
    fluid: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        return self._fields(function.inputs for function in self.functions)

    @property
    def outputs(self) -> tuple[str, ...]:
        return self._fields(function.outputs for function in self.functions)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its functions."""
        return tuple(function.name for function in self.functions)

    def _fields(self, names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
        own = (FUNCTION,) if self.fluid else ()
        return tuple(dict.fromkeys([*(name for some in names for name in some), *own]))

    def __call__(self, inputs: Tree) -> Tree:
        """Returns the outputs. A fluid neuron passes its mix on; names in the mix that are none of its functions do
        nothing.
        """
        if not self.fluid:
            return self.functions[0](inputs)
        mix = trees.as_tree(inputs.get(FUNCTION, {}))
        active = [function for function in self.functions if function.name in mix]
        parts = [trees.scale(trees.number(mix[function.name]), function(inputs)) for function in active]
        return {**trees.add(*parts), FUNCTION: mix}

    def with_options(self, options: dict[str, Any]) -> "Neuron":
        """Returns the neuron with each option set for those of its functions that have it."""
        functions = (
            function.with_options(**{key: options[key] for key in options if key in function.options})
            for function in self.functions
        )
        return Neuron(tuple(functions), self.fluid)
