"""Products and scatters as multiplications, comparisons and sums.

XLA gives them to libraries, or to code that needs its threads, which the kernel of a small loop (`_small`) cannot call.
For a few numbers, sums are no slower.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing import jaxprs

SCATTERS = frozenset({"scatter", "scatter-add"})


def written_out(eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any] | None:
    """The outputs of a product or a scatter; None for everything else."""
    if eqn.primitive is p.dot_general_p:
        a, b = inputs
        return [product(a, b, eqn.params["dimension_numbers"], jaxprs.dtype(eqn.outvars[0]))]
    if eqn.primitive.name in SCATTERS:
        operand, indices, updates = inputs
        targets = _targets(operand, indices, updates, eqn.params).reshape(-1)
        adds = eqn.primitive.name == "scatter-add"
        place = _place_one if updates.size == 1 else _add if adds else _set
        new = place(operand.reshape(-1), targets, updates.reshape(-1), adds)
        return [new.reshape(operand.shape)]
    return None


def product(a: Any, b: Any, dimension_numbers: Any, dtype: Any) -> Any:
    """`lax.dot_general` as a multiplication and a sum."""
    (contracted_a, contracted_b), (batch_a, batch_b) = dimension_numbers
    free_a = [i for i in range(a.ndim) if i not in (*contracted_a, *batch_a)]
    free_b = [i for i in range(b.ndim) if i not in (*contracted_b, *batch_b)]
    a = lax.transpose(a, (*batch_a, *free_a, *contracted_a))
    b = lax.transpose(b, (*batch_b, *free_b, *contracted_b))
    batch = len(batch_a)
    a = lax.expand_dims(a, range(batch + len(free_a), batch + len(free_a) + len(free_b)))
    b = lax.expand_dims(b, range(batch, batch + len(free_a)))
    products = a.astype(dtype) * b.astype(dtype)
    axes = tuple(range(products.ndim - len(contracted_a), products.ndim))
    return jnp.sum(products, axis=axes, dtype=dtype)


def _targets(operand: Any, indices: Any, updates: Any, params: Any) -> Any:
    """For each number of `updates` its place in the flat operand, -1 for none: a gather of all places."""
    numbers = params["dimension_numbers"]
    dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    window = iter(np.take(updates.shape, numbers.update_window_dims).tolist())
    sizes = tuple(1 if i in dropped else next(window) for i in range(operand.ndim))
    places = jnp.arange(operand.size, dtype=jnp.int32).reshape(operand.shape)
    opposite = lax.GatherDimensionNumbers(
        offset_dims=numbers.update_window_dims,
        collapsed_slice_dims=numbers.inserted_window_dims,
        start_index_map=numbers.scatter_dims_to_operand_dims,
        operand_batching_dims=numbers.operand_batching_dims,
        start_indices_batching_dims=numbers.scatter_indices_batching_dims,
    )
    return lax.gather(places, indices, opposite, sizes, mode=params["mode"], fill_value=-1)


def _place_one(operand: Any, targets: Any, updates: Any, adds: bool) -> Any:
    """One number in one place, or none: nothing else is touched."""
    at = jnp.maximum(targets, 0)
    old = lax.dynamic_slice(operand, at, (1,))
    new = jnp.where(targets >= 0, old + updates if adds else updates, old)
    return lax.dynamic_update_slice(operand, new, at)


def _add(operand: Any, targets: Any, updates: Any, adds: bool) -> Any:
    new = jnp.where(_hits(operand, targets), updates[None], jnp.zeros_like(updates)[None])
    return operand + jnp.sum(new, axis=1, dtype=operand.dtype)


def _set(operand: Any, targets: Any, updates: Any, adds: bool) -> Any:
    """The last update of a place is the one that stays."""
    order = jnp.arange(updates.size, dtype=jnp.int32)
    last = jnp.max(jnp.where(_hits(operand, targets), order[None], -1), axis=1)
    new = jnp.where(order[None] == last[:, None], updates[None], jnp.zeros_like(updates)[None])
    return jnp.where(last >= 0, jnp.sum(new, axis=1, dtype=operand.dtype), operand)


def _hits(operand: Any, targets: Any) -> Any:
    """Whether a number of the operand (row) is the target of an update (column)."""
    return targets[None] == jnp.arange(operand.size, dtype=jnp.int32)[:, None]
