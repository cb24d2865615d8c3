"""Attention to keys and values that were made before. Heads come before places, which on a CPU is three times faster.

The two products of an attention have derivatives of their own, which say the same as jax's in another order of axes.
The gradients of keys and values add over the few queries of each head, and XLA has only a plain loop for such a sum
where the queries are not beside each other in memory. So they are put there first; the barriers keep XLA from putting
them back. It makes the gradient of a thinker a tenth faster on a CPU (docs/performance.md).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Offer(NamedTuple):
    """What can be attended to."""

    keys: Float[Array, "heads places size"]
    values: Float[Array, "heads places size"]


class Source(NamedTuple):
    """An offer, and which of its places may be seen."""

    offer: Offer
    seen: Bool[Array, " places"]


def attend(
    queries: Float[Array, "heads queries size"], sources: Sequence[Source]
) -> Float[Array, "heads queries size"]:
    """The mean of all values of all sources, weighted by how well their keys fit; the weights are made in float32."""
    # To put small keys beside each other is quicker than to multiply with each source alone.
    keys = jnp.concatenate([source.offer.keys for source in sources], axis=1)
    values = jnp.concatenate([source.offer.values for source in sources], axis=1)
    seen = jnp.concatenate([source.seen for source in sources])
    fit = _fits(queries, keys).astype(jnp.float32)
    logits = jnp.where(seen, fit * queries.shape[-1] ** -0.5, -jnp.inf)
    weights = jax.nn.softmax(logits, axis=-1).astype(queries.dtype)
    return _means(weights, values)


@jax.custom_jvp
def _fits(
    queries: Float[Array, "heads queries size"], keys: Float[Array, "heads places size"]
) -> Float[Array, "heads queries places"]:
    return jnp.einsum("hqs,hps->hqp", queries, keys)


@_fits.defjvp
def _fits_tangent(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (queries, keys), (queries_dot, keys_dot) = primals, tangents
    by_place = jax.lax.optimization_barrier(jnp.einsum("hps,hqs->hpq", keys_dot, queries))
    return _fits(queries, keys), _fits(queries_dot, keys) + by_place.swapaxes(1, 2)


@jax.custom_jvp
def _means(
    weights: Float[Array, "heads queries places"], values: Float[Array, "heads places size"]
) -> Float[Array, "heads queries size"]:
    return jnp.einsum("hqp,hps->hqs", weights, values)


@_means.defjvp
def _means_tangent(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (weights, values), (weights_dot, values_dot) = primals, tangents
    by_place = jax.lax.optimization_barrier(weights.swapaxes(1, 2))
    moved = jnp.einsum("hpq,hps->hqs", by_place, values_dot)
    return _means(weights, values), _means(weights_dot, values) + moved
