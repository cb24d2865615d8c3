"""Blocks of the network matrix as arrays, and products of outputs with such a block.

Outputs are [..., keys, fields from], a block of the matrix [fields from, fields to]; in a batch both have the machines
as one more axis at the end (`_compile_batched`).
"""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ._layout import Field

# Up to this size an explicit sum is faster on a CPU than a call of a matrix product.
FEW_MULTIPLICATIONS = 2048


def matrix_block(
    values: jax.Array,
    weights: Mapping[tuple[Field, Field], int],
    sources: Sequence[Field],
    targets: Sequence[Field],
) -> jax.Array | None:
    """The matrix from these output fields to these input fields, or None without links."""
    row = {field: i for i, field in enumerate(sources)}
    column = {field: i for i, field in enumerate(targets)}
    links = [(row[s], column[t], index) for (t, s), index in weights.items() if t in column and s in row]
    if not links:
        return None
    rows, columns, indices = np.array(links).T
    empty = jnp.zeros((len(sources), len(targets), *values.shape[1:]), values.dtype)
    return empty.at[rows, columns].set(values[indices], unique_indices=True)


def product(left: jax.Array, right: jax.Array) -> jax.Array:
    """A product of matrices in full float32: by default, a GPU would round their numbers to ten bits, and a machine
    whose numbers are no small integers would never be exact."""
    return jnp.matmul(left, right, precision="highest")


def combine_all(stream: jax.Array, outputs: jax.Array | None, matrix: jax.Array) -> jax.Array:
    """Known outputs and computed ones of all cycles, times a block of the matrix."""
    read = [stream] if outputs is None else [stream, outputs]
    return product(jnp.concatenate(read, -1), matrix)


def combine_step(outputs: jax.Array, matrix: jax.Array) -> jax.Array:
    """Outputs of one cycle times a block of the matrix."""
    if len(outputs) == 1:
        return product(outputs[0], matrix)[None]
    if len(outputs) * matrix.size <= FEW_MULTIPLICATIONS:
        return jnp.sum(outputs[:, :, None] * matrix, axis=1)
    return product(outputs, matrix)
