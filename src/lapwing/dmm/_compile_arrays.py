"""Activation functions on arrays: a field of a group of neurons is one array [..., keys of a class, neurons]
per class.

The functions that every machine has (accum, norm, dot, compare) are written here a second time, on arrays;
all others are vmapped as they are. That the two forms agree is tested against the interpreter.

Each works in two parts, because in a knot some of its inputs are settled for all cycles before the loop
starts, and what can be computed from those should not be computed in the loop: `settle` takes them, with time
in front, and gives a summary; `finish` takes the summary of one cycle and the inputs that are moving.

Negative axes count from the back; in a population the machines come last, behind the neurons.
"""

import abc
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing import trees
from lapwing.trees import NUMBER, Path

from ._activation import Activation
from ._layout_stages import Slot
from ._numbers import governed, relu, size

Parts = Mapping[Slot, jax.Array]
Classes = tuple[tuple[Path, ...], ...]
Summary = dict[str, Any]


class Form(abc.ABC):
    """An activation on arrays. `keys` is the axis of the keys."""

    def __init__(self, activation: Activation, classes: Classes, keys: int):
        self.inputs, self.outputs, self.options = activation.inputs, activation.outputs, activation.options
        self.activation, self.classes, self.keys = activation, classes, keys
        self.number = next((i for i, paths in enumerate(classes) if paths == ((NUMBER,),)), -1)

    def settle(self, parts: Parts) -> Summary:
        return {"parts": dict(parts)}

    @abc.abstractmethod
    def finish(self, summary: Summary, parts: Parts) -> dict[Slot, jax.Array]: ...


class Accum(Form):
    def finish(self, summary: Summary, parts: Parts) -> dict[Slot, jax.Array]:
        truncated = self.options["accumulator_gradient"] == "truncated"
        sums: dict[Slot, jax.Array] = {}
        for (field, c), part in {**summary["parts"], **parts}.items():
            part = jax.lax.stop_gradient(part) if truncated and field == self.inputs[0] else part
            slot = (self.outputs[0], c)
            sums[slot] = sums[slot] + part if slot in sums else part
        return sums


class Compare(Form):
    def finish(self, summary: Summary, parts: Parts) -> dict[Slot, jax.Array]:
        given = {**summary["parts"], **parts}
        left, right = (given.get((field, self.number), 0.0) for field in self.inputs)
        difference = jnp.asarray(left - right)
        yes, no = self.outputs
        return {(yes, self.number): relu(difference), (no, self.number): relu(-difference)}


class Dot(Form):
    def settle(self, parts: Parts) -> Summary:
        left, right = self.inputs
        pairs = [c for field, c in parts if field == left and (right, c) in parts]
        rest = {slot: part for slot, part in parts.items() if slot[1] not in pairs}
        return {"sum": self._sum(parts, pairs), "parts": rest}

    def finish(self, summary: Summary, parts: Parts) -> dict[Slot, jax.Array]:
        given = {**summary["parts"], **parts}
        left, right = self.inputs
        moving = self._sum(given, [c for field, c in given if field == left and (right, c) in given])
        sums = [s for s in (summary["sum"], moving) if s is not None]
        if not sums:
            return {}
        total = functools.reduce(jnp.add, sums)
        return {(self.outputs[0], self.number): governed(total, self.options["governor"])}

    def _sum(self, parts: Parts, classes: list[int]) -> jax.Array | None:
        products = [parts[self.inputs[0], c] * parts[self.inputs[1], c] for c in classes]
        sums = [jnp.sum(product, self.keys, keepdims=True) for product in products]
        return functools.reduce(jnp.add, sums) if sums else None


class Norm(Form):
    """The largest |leaf|, found class by class. What is needed to treat ties as if all leaves had been compared at once
    goes along: how many leaves are the largest, or the rank of the one that takes all."""

    def settle(self, parts: Parts) -> Summary:
        found = [self._candidates(part, c) for (_, c), part in parts.items()]
        return {"largest": _join(found, self.options["norm_ties"], self.keys) if found else None}

    def finish(self, summary: Summary, parts: Parts) -> dict[Slot, jax.Array]:
        found = [self._candidates(part, c) for (_, c), part in parts.items()]
        found += [summary["largest"]] if summary["largest"] is not None else []
        if not found:
            return {}
        return {(self.outputs[0], self.number): _join(found, self.options["norm_ties"], self.keys)[0]}

    def _candidates(self, part: jax.Array, c: int) -> tuple[jax.Array, jax.Array]:
        places = {key: place for place, key in enumerate(self.options["norm_order"], start=1)}
        in_order = sorted((places.get(path[0], 0), path) for paths in self.classes for path in paths)
        ranks = {path: rank for rank, (_, path) in enumerate(in_order, start=1)}
        shared = self.options["norm_ties"] == "shared"
        ties = np.array([1 if shared else ranks[path] for path in self.classes[c]], np.int32)
        shape = [1] * part.ndim
        shape[self.keys] = len(ties)
        return size(part), jnp.broadcast_to(ties.reshape(shape), part.shape)


Candidates = tuple[jax.Array, jax.Array]


def _join(candidates: list[Candidates], ties: str, keys: int) -> Candidates:
    reduced = [c if c[0].shape[keys] == 1 else _largest(ties, keys, *c) for c in candidates]
    return functools.reduce(lambda a, b: _larger(ties, *a, *b), reduced)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _largest(ties: str, keys: int, sizes: jax.Array, weights: jax.Array) -> Candidates:
    """The largest size along the axis `keys`, and its weight in further ties."""
    largest = jnp.max(sizes, keys, keepdims=True)
    tied = jnp.where(sizes == largest, weights, 0)
    return largest, (jnp.sum if ties == "shared" else jnp.max)(tied, keys, keepdims=True)


@_largest.defjvp
def _(ties, keys, primals, tangents):
    sizes, weights = primals
    largest, tie = _largest(ties, keys, sizes, weights)
    tied = jnp.where(sizes == largest, weights, 0)
    share = tied / tie if ties == "shared" else tied == tie
    tangent = jnp.sum(share.astype(sizes.dtype) * tangents[0], keys, keepdims=True)
    return (largest, tie), (tangent, _no_tangent(tie))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _larger(ties: str, a: jax.Array, a_weight: jax.Array, b: jax.Array, b_weight: jax.Array) -> Candidates:
    """The larger of two sizes, and its weight in further ties."""
    tied = a_weight + b_weight if ties == "shared" else jnp.maximum(a_weight, b_weight)
    return jnp.maximum(a, b), jnp.where(a > b, a_weight, jnp.where(a < b, b_weight, tied))


@_larger.defjvp
def _(ties, primals, tangents):
    a, a_weight, b, b_weight = primals
    larger, tie = _larger(ties, *primals)
    tied = a_weight / (a_weight + b_weight) if ties == "shared" else a_weight > b_weight
    share = jnp.where(a > b, 1, jnp.where(a < b, 0, tied.astype(a.dtype)))
    return (larger, tie), (share * tangents[0] + (1 - share) * tangents[2], _no_tangent(tie))


def _no_tangent(tie: jax.Array) -> np.ndarray:
    return np.zeros(tie.shape, jax.dtypes.float0)


class Vmapped(Form):
    """Any other activation: the function on trees of scalars, for every neuron and cycle."""

    def finish(self, summary: Summary, parts: Parts) -> dict[Slot, jax.Array]:
        given = {**summary["parts"], **parts}
        leaves: dict[str, dict[Path, jax.Array]] = {field: {} for field in self.inputs}
        for (field, c), part in given.items():
            for i, path in enumerate(self.classes[c]):
                leaves[field][path] = jnp.take(part, i, axis=self.keys)
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
                    # `keys` counts from the back of an array that has the keys' axis.
                    behind = -self.keys - 1
                    rows = [row if row.ndim else row.reshape((1,) * behind) for row in rows]
                    found[field, c] = jnp.stack(rows, rows[0].ndim - behind)
        return found


FORMS: dict[str, type[Form]] = {"accum": Accum, "norm": Norm, "dot": Dot, "compare": Compare}


def form_of(activation: Activation, classes: Classes, keys: int) -> Form:
    return FORMS.get(activation.basis or activation.name, Vmapped)(activation, classes, keys)
