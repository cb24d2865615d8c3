"""How an attention knows where a position is, so that it works on problems longer than those of the training.

- `rotary`: what counts is how far two positions are apart. In a long problem, some are further apart than any in
  training.
- `random`: the same, but in training the positions are drawn, in their order, from a range that is as long as the
  longest problem to come; so all distances are known (randomized positional encodings).
- `abacus`: a learned vector for the place of a digit in its number, with an offset that is drawn in training, so that
  the vectors of all places are learned (Abacus embeddings). Nothing else says where a position is.
- `places`: rotary, by the place of a digit in its number: what counts is by how many places two digits differ. And the
  more that is, the less they see of each other, or those of a long number would disturb (linear biases, as in ALiBi).
"""

from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from ._layer import normal

Positions = Literal["rotary", "random", "abacus", "places"]
Turns = tuple[Float[Array, "... positions 1 pairs"], Float[Array, "... positions 1 pairs"]]
"""Cosines and sines by which queries and keys are turned, for all heads."""

_SLOWEST = 100.0
_STEEPEST, _FLATTEST = 1, -2
"""Powers of two."""


class Abacus(eqx.Module):
    """A vector for each place of a number."""

    table: Float[Array, "places width"]

    def __init__(self, reach: int, width: int, key: Key[Array, ""]):
        self.table = normal(key, (reach + 1, width), 2)

    def __call__(
        self, places: Int[Array, "count positions"], drawn: Int[Array, ""] | None
    ) -> Float[Array, "count positions width"]:
        """The vectors; with `drawn`, a random number, those of all places are moved by an offset."""
        last = len(self.table) - 1
        if drawn is not None:
            most = jnp.maximum(last - jnp.max(places), 0)
            places = places + (places > 0) * jax.random.randint(jax.random.key(drawn), (), 0, most + 1)
        return self.table[jnp.minimum(places, last)]


def places_of(
    inputs: Int[Array, "count positions channels"], separators: Sequence[int]
) -> Int[Array, "count positions"]:
    """The place of each position in its number, from 1; 0 for the separators between numbers.

    >>> places_of(jnp.array([[3, 4, 9, 5, 6, 7]])[..., None], [9])
    Array([[1, 2, 0, 1, 2, 3]], dtype=int32)
    """
    at = jnp.arange(1, inputs.shape[1] + 1)
    between = jnp.isin(inputs[..., 0], jnp.array([*separators], inputs.dtype))
    return at - jax.lax.cummax(jnp.where(between, at, 0), axis=1)


def spread(length: int, reach: int, drawn: Int[Array, ""] | None) -> Float[Array, " positions"]:
    """Rising positions within `reach`: drawn at random, or, by default, at equal distances."""
    reach = max(reach, length)
    if drawn is None:
        return (jnp.arange(length) + 0.5) * (reach / length)
    return jnp.sort(jax.random.permutation(jax.random.key(drawn), reach)[:length]).astype(float)


def turns_of(along: Sequence[Float[Array, "... length"]], size: int) -> Turns:
    """How much a position is turned: an equal share of the pairs of numbers for each axis.

    **Arguments:**

    - `along`: for each axis, where its positions are.
    """
    pairs = size // 2
    each = -(-pairs // len(along))
    rates = _SLOWEST ** (-jnp.arange(each) / each)
    angles = []
    for axis, where in enumerate(along):
        shape = [1] * len(along) + [each]
        shape[axis] = where.shape[-1]
        angles.append((where[..., None] * rates).reshape(*where.shape[:-1], *shape))
    every = jnp.broadcast_shapes(*(angle.shape for angle in angles))
    joined = jnp.concatenate([jnp.broadcast_to(angle, every) for angle in angles], axis=-1)
    flat = joined.reshape(*joined.shape[: -1 - len(along)], -1, 1, len(along) * each)[..., :pairs]
    return jnp.cos(flat), jnp.sin(flat)


def far_off(
    where: Float[Array, "... positions"], heads: int
) -> Float[Array, "... heads positions positions"]:
    """How far positions are apart, times a slope for each head: some see only what is near."""
    slopes = 2.0 ** jnp.linspace(_STEEPEST, _FLATTEST, heads)
    apart = jnp.abs(where[..., :, None] - where[..., None, :])
    return apart[..., None, :, :] * slopes[:, None, None]


def turned(x: Float[Array, "count positions heads size"], turns: Turns) -> Array:
    cos, sin = turns
    first, second = jnp.split(x[..., : 2 * cos.shape[-1]], 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)
