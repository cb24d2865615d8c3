"""Activation functions on arrays: a field of a group of neurons is one array [..., keys, neurons] per class of keys.

An activation may bring its own form (`Activation.arrays`); accumulators are sums; all others are vmapped as they are.

A form works in two parts. In a recurrent stage some inputs are known for all cycles before the loop starts, and what
follows from those should not be computed in the loop: `precompute` takes them, with time in front, and `apply` takes
its result for one cycle and the inputs that change in the loop.

Axes are counted from the back: in a batch the machines are the last axis, behind the neurons.
"""

import abc
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lapwing import trees
from lapwing.trees import NUMBER, Path

from ._activation import Activation

Slot = tuple[str, int]  # a field and a class of keys
Arrays = Mapping[Slot, jax.Array]
Classes = tuple[tuple[Path, ...], ...]
Partial = dict[str, Any]


class ArrayForm(abc.ABC):
    """An activation on arrays, each [..., keys, neurons], by field and class of keys.

    **Attributes**: `inputs`, `outputs` and `options` of the activation; `classes`, the key paths of each class;
    `keys`, the axis of the keys; `number`, the class that is the one key ":number".

    >>> import jax.numpy as jnp
    >>> from lapwing import dmm
    >>> class Halved(dmm.ArrayForm):
    ...     '''The array form of an activation of one field `dict`, which halves it.'''
    ...     def apply(self, partial, inputs):
    ...         known = {**partial["inputs"], **inputs}
    ...         return {("half", kind): 0.5 * array for (_, kind), array in known.items()}
    >>> @dmm.activation(inputs=("dict",), outputs=("half",), linearity="linear")
    ... def halve(inputs):
    ...     return {"half": inputs["dict"]}
    >>> form = Halved(halve, ((("a",), ("b",)),), keys=2)
    >>> form.apply(form.precompute({}), {("dict", 0): jnp.ones((2, 1))})[("half", 0)].tolist()
    [[0.5], [0.5]]
    """

    def __init__(self, activation: Activation, classes: Classes, keys: int):
        self.inputs, self.outputs, self.options = activation.inputs, activation.outputs, activation.options
        self.activation, self.classes, self.keys = activation, classes, keys
        self.number = next((i for i, paths in enumerate(classes) if paths == ((NUMBER,),)), -1)

    def precompute(self, inputs: Arrays) -> Partial:
        """What the loop needs of the inputs that are known for all cycles."""
        return {"inputs": dict(inputs)}

    @abc.abstractmethod
    def apply(self, partial: Partial, inputs: Arrays) -> dict[Slot, jax.Array]:
        """The outputs, given a partial result and the other inputs. An input that is not there is zero."""


class Sum(ArrayForm):
    """An accumulator."""

    def apply(self, partial: Partial, inputs: Arrays) -> dict[Slot, jax.Array]:
        sums: dict[Slot, jax.Array] = {}
        for (field, c), array in {**partial["inputs"], **inputs}.items():
            stopped = self.activation.truncated and field == self.inputs[0]
            array = jax.lax.stop_gradient(array) if stopped else array
            slot = (self.outputs[0], c)
            sums[slot] = sums[slot] + array if slot in sums else array
        return sums


class Vmapped(ArrayForm):
    """Any other activation: the function on trees of scalars, for every neuron and cycle."""

    def apply(self, partial: Partial, inputs: Arrays) -> dict[Slot, jax.Array]:
        leaves: dict[str, dict[Path, jax.Array]] = {field: {} for field in self.inputs}
        for (field, c), array in {**partial["inputs"], **inputs}.items():
            for i, path in enumerate(self.classes[c]):
                leaves[field][path] = jax.lax.index_in_dim(array, i, self.keys, keepdims=False)
        shape = jnp.broadcast_shapes(*(leaf.shape for some in leaves.values() for leaf in some.values()))
        function: Callable[..., Any] = self._on_scalars
        for _ in shape:
            function = jax.vmap(function)
        spread = {f: {p: jnp.broadcast_to(x, shape) for p, x in some.items()} for f, some in leaves.items()}
        return self._stacked(function(spread))

    def _on_scalars(self, leaves: dict[str, dict[Path, jax.Array]]) -> dict[tuple[str, Path], jax.Array]:
        outputs = self.activation({field: trees.from_paths(some) for field, some in leaves.items()})
        found = {(path[0], path[1:]): leaf for path, leaf in trees.paths(outputs).items()}
        return {key: jnp.asarray(leaf) for key, leaf in found.items()}

    def _stacked(self, leaves: dict[tuple[str, Path], jax.Array]) -> dict[Slot, jax.Array]:
        found = {}
        for field in self.outputs:
            for c, paths in enumerate(self.classes):
                if any((field, path) in leaves for path in paths):
                    one = next(leaf for leaf in leaves.values())
                    rows = [leaves.get((field, path), jnp.zeros_like(one)) for path in paths]
                    # `keys` counts from the back of an array that has the axis of the keys.
                    behind = -self.keys - 1
                    rows = [row if row.ndim else row.reshape((1,) * behind) for row in rows]
                    found[field, c] = jnp.stack(rows, rows[0].ndim - behind)
        return found


def form_of(activation: Activation, classes: Classes, keys: int) -> ArrayForm:
    """The activation on arrays."""
    form = activation.arrays or (Sum if activation.accumulator else Vmapped)
    return form(activation, classes, keys)
