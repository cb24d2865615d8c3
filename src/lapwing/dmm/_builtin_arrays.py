"""The built-in norm, dot and compare a second time, on arrays. That both forms agree is tested on random machines."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from ._compile_arrays import ArrayForm, Arrays, Partial, Slot
from ._numbers import governed, relu, size


class Compare(ArrayForm):
    def apply(self, partial: Partial, inputs: Arrays) -> dict[Slot, jax.Array]:
        given = {**partial["inputs"], **inputs}
        left, right = (given.get((field, self.number), 0.0) for field in self.inputs)
        difference = jnp.asarray(left - right)
        yes, no = self.outputs
        return {(yes, self.number): relu(difference), (no, self.number): relu(-difference)}


class Dot(ArrayForm):
    def precompute(self, inputs: Arrays) -> Partial:
        pairs = self._pairs(inputs)
        rest = {slot: array for slot, array in inputs.items() if slot[1] not in pairs}
        return {"sum": self._sum(inputs, pairs), "inputs": rest}

    def apply(self, partial: Partial, inputs: Arrays) -> dict[Slot, jax.Array]:
        given = {**partial["inputs"], **inputs}
        sums = [s for s in (partial["sum"], self._sum(given, self._pairs(given))) if s is not None]
        if not sums:
            return {}
        total = functools.reduce(jnp.add, sums)
        return {(self.outputs[0], self.number): governed(total, self.options["governor"])}

    def _pairs(self, inputs: Arrays) -> list[int]:
        """The classes of keys that both inputs have."""
        left, right = self.inputs
        return [c for field, c in inputs if field == left and (right, c) in inputs]

    def _sum(self, inputs: Arrays, classes: list[int]) -> jax.Array | None:
        products = [inputs[self.inputs[0], c] * inputs[self.inputs[1], c] for c in classes]
        sums = [jnp.sum(product, self.keys, keepdims=True) for product in products]
        return functools.reduce(jnp.add, sums) if sums else None


# Sizes, and for ties the number of leaves of that size ("shared") or the rank of the one that wins ("last").
Candidates = tuple[jax.Array, jax.Array]


class Norm(ArrayForm):
    """The largest |leaf|, class by class; the weights of the candidates treat ties as if all were compared at once."""

    def precompute(self, inputs: Arrays) -> Partial:
        found = [self._candidates(array, c) for (_, c), array in inputs.items()]
        return {"largest": self._join(found) if found else None}

    def apply(self, partial: Partial, inputs: Arrays) -> dict[Slot, jax.Array]:
        found = [self._candidates(array, c) for (_, c), array in inputs.items()]
        found += [partial["largest"]] if partial["largest"] is not None else []
        return {(self.outputs[0], self.number): self._join(found)[0]} if found else {}

    def _candidates(self, array: jax.Array, c: int) -> Candidates:
        order = {key: place for place, key in enumerate(self.options["norm_order"], start=1)}
        in_order = sorted((order.get(path[0], 0), path) for paths in self.classes for path in paths)
        ranks = {path: rank for rank, (_, path) in enumerate(in_order, start=1)}
        shared = self.options["norm_ties"] == "shared"
        ties = np.array([1 if shared else ranks[path] for path in self.classes[c]], np.int32)
        shape = [1] * array.ndim
        shape[self.keys] = len(ties)
        return size(array), jnp.broadcast_to(ties.reshape(shape), array.shape)

    def _join(self, candidates: list[Candidates]) -> Candidates:
        ties, keys = self.options["norm_ties"], self.keys
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
