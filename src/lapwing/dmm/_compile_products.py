"""Pieces of the network matrix as arrays, and the product of outputs with such a piece.

Outputs are [..., keys, fields from], a piece of the matrix [fields from, fields to]; in a population both
have the machines as one more axis at the end, and every machine its own product.
"""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ._layout import Field

# Up to so many multiplications a sum written out is quicker on a CPU than a call of a matrix product.
FEW_MULTIPLICATIONS = 2048


def piece(
    values: jax.Array,
    weights: Mapping[tuple[Field, Field], int],
    sources: Sequence[Field],
    targets: Sequence[Field],
) -> jax.Array | None:
    """The matrix from these output fields to these input fields; None if no link is among them."""
    row = {field: i for i, field in enumerate(sources)}
    column = {field: i for i, field in enumerate(targets)}
    links = [(row[s], column[t], place) for (t, s), place in weights.items() if t in column and s in row]
    if not links:
        return None
    rows, columns, places = np.array(links).T
    empty = jnp.zeros((len(sources), len(targets), *values.shape[1:]), values.dtype)
    return empty.at[rows, columns].set(values[places], unique_indices=True)


def weighed_at_once(stream: jax.Array, outputs: jax.Array | None, matrix: jax.Array) -> jax.Array:
    """Known outputs and computed ones, of all cycles, times a piece of the matrix."""
    read = [stream] if outputs is None else [stream, outputs]
    return jnp.concatenate(read, -1) @ matrix


def weighed(outputs: jax.Array, matrix: jax.Array) -> jax.Array:
    """Outputs of all cycles times a piece of the matrix."""
    return outputs @ matrix


def weighed_in_loop(outputs: jax.Array, matrix: jax.Array) -> jax.Array:
    """Outputs of one cycle times a piece of the matrix."""
    if len(outputs) == 1:
        return (outputs[0] @ matrix)[None]
    if len(outputs) * matrix.size <= FEW_MULTIPLICATIONS:
        return jnp.sum(outputs[:, :, None] * matrix, axis=1)
    return outputs @ matrix
