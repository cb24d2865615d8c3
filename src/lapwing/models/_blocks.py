"""The blocks of a looped network: how the vector at a position sees the others, and the input again, in every step.

What a block needs of the input does not change from step to step, so it is computed once (`recall`). All sums over
neighbours are written as one product, so that `lapwing.loops.scan` can take the weights' gradients out of the loop.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from ._candidates import Groups
from ._layer import normal, unit
from ._positions import Turns, far_off, turned, turns_of

Mixer = Literal["convolution", "attention", "candidates", "dense"]
"""How the places of a problem see each other."""
Field = Float[Array, "count *positions width"]
Along = Sequence[Float[Array, "... length"]] | None
"""Where positions are, along each axis."""


class Block(Protocol):
    """One step of thinking."""

    def recall(self, x: Field) -> Any:
        """What every step needs of the embedded input."""
        ...

    def __call__(self, h: Field, recalled: Any) -> Field: ...


class Convolution(eqx.Module):
    """Each position sees its neighbours, twice: what is far away is some steps away."""

    of_state: Float[Array, "seen hidden"]
    of_input: Float[Array, "seen hidden"]
    bias: Float[Array, " hidden"]
    narrow: Float[Array, "seen_hidden width"]
    narrow_bias: Float[Array, " width"]

    def __init__(self, dimensions: int, width: int, hidden: int, key: Key[Array, ""]):
        state_key, input_key, narrow_key = jax.random.split(key, 3)
        seen = 3**dimensions
        self.of_state = normal(state_key, (seen * width, hidden), 2 * seen * width)
        self.of_input = normal(input_key, (seen * width, hidden), 2 * seen * width)
        self.bias = jnp.zeros(hidden)
        self.narrow = normal(narrow_key, (seen * hidden, width), seen * hidden)
        self.narrow_bias = jnp.zeros(width)

    def recall(self, x: Field) -> Field:
        return neighbourhood(x) @ self.of_input + self.bias

    def __call__(self, h: Field, recalled: Field) -> Field:
        hidden = jax.nn.gelu(neighbourhood(h) @ self.of_state + recalled)
        return h + neighbourhood(hidden) @ self.narrow + self.narrow_bias


def neighbourhood(x: Field) -> Float[Array, "count *positions seen"]:
    """At each position the vectors of all positions at a distance of at most one, along every axis; zeros outside."""
    axes = range(1, x.ndim - 1)
    padded = jnp.pad(x, [(0, 0), *[(1, 1)] * len(axes), (0, 0)])
    shifted = []
    for offsets in itertools.product(range(3), repeat=len(axes)):
        cut = [slice(offset, offset + x.shape[axis]) for axis, offset in zip(axes, offsets, strict=True)]
        shifted.append(padded[(slice(None), *cut)])
    return jnp.concatenate(shifted, axis=-1)


class Feed(eqx.Module):
    """A feed-forward at each position, which also sees the input."""

    of_state: Float[Array, "width hidden"]
    of_input: Float[Array, "width hidden"]
    bias: Float[Array, " hidden"]
    narrow: Float[Array, "hidden width"]

    def __init__(self, width: int, hidden: int, key: Key[Array, ""]):
        state_key, input_key, narrow_key = jax.random.split(key, 3)
        self.of_state = normal(state_key, (width, hidden), 2 * width)
        self.of_input = normal(input_key, (width, hidden), 2 * width)
        self.bias = jnp.zeros(hidden)
        self.narrow = normal(narrow_key, (hidden, width), hidden)

    def recall(self, x: Field) -> Field:
        return x @ self.of_input + self.bias

    def __call__(self, h: Field, recalled: Field) -> Field:
        return h + jax.nn.gelu(h @ self.of_state + recalled) @ self.narrow


class Recalled(NamedTuple):
    """What an attention needs of the input in every step."""

    x: Field
    fed: Field
    turns: Turns | None
    far: Float[Array, "... heads positions positions"] | None
    """What is subtracted from the scores of positions that are far apart."""


class Attention(eqx.Module):
    """Each position attends to all, with rotary positions along every axis: what counts is how far they are apart.
    Where they are may be given.

    Where positions are in groups instead, such as the rows of a Sudoku, heads take turns in the kinds of groups: one
    attends to the positions of the same row, the next one to those of the same column, and one of them to all.
    """

    query_key_value: Float[Array, "width 3*width"]
    mix: Float[Array, "width width"]
    feed: Feed
    heads: int = eqx.field(static=True)
    groups: Groups = eqx.field(static=True)

    def __init__(self, width: int, hidden: int, heads: int, key: Key[Array, ""], groups: Groups = ()):
        first, second, third = jax.random.split(key, 3)
        self.query_key_value = normal(first, (width, 3 * width), width)
        self.mix = normal(second, (width, width), width)
        self.feed = Feed(width, hidden, third)
        self.heads, self.groups = heads, groups

    def recall(self, x: Field, along: Along = None, is_near: bool = False) -> Recalled:
        """**Arguments:**

        - `along`: where the positions are, along each axis; by default, they are counted. Without any axis, nothing is
          turned.
        - `is_near`: positions count less the further they are apart, along the first axis.
        """
        if along is None:
            along = [jnp.arange(length, dtype=float) for length in x.shape[1:-1]]
        is_turned = along and not self.groups
        size = x.shape[-1] // self.heads
        turns = turns_of(along, size) if is_turned else None
        return Recalled(x, self.feed.recall(x), turns, far_off(along[0], self.heads) if is_near else None)

    def __call__(self, h: Field, recalled: Recalled) -> Field:
        x, fed, turns, far = recalled
        where = h.shape[1:-1]
        flat = (h + x).reshape(h.shape[0], math.prod(where), -1) @ self.query_key_value
        query, key, value = (
            each.reshape(*each.shape[:2], self.heads, -1) for each in jnp.split(flat, 3, axis=-1)
        )
        if turns is not None:
            query, key = turned(query, turns), turned(key, turns)
        scores = jnp.einsum("cqhs,ckhs->chqk", query, key) * query.shape[-1] ** -0.5
        if far is not None:
            scores = scores - far
        if self.groups:
            scores = jnp.where(_seen(self.groups, self.heads), scores, -jnp.inf)
        weights = jax.nn.softmax(scores, axis=-1)
        seen = jnp.einsum("chqk,ckhs->cqhs", weights, value).reshape(*flat.shape[:2], -1)
        return self.feed(unit(h + (seen @ self.mix).reshape(h.shape)), fed)


def _seen(groups: Groups, heads: int) -> Bool[np.ndarray, "heads positions positions"]:
    """Which positions see each other: in every head those of a group, in the last of its turn all."""
    numbers = np.array([*groups, [0] * len(groups[0])])
    same = numbers[:, :, None] == numbers[:, None, :]
    return same[np.arange(heads) % len(same)]


class Dense(eqx.Module):
    """All positions are mixed by one matrix for each: for fields of one size, such as a Sudoku."""

    across: Float[Array, "positions inner"]
    back: Float[Array, "inner positions"]
    feed: Feed

    def __init__(self, positions: int, width: int, hidden: int, key: Key[Array, ""]):
        first, second, third = jax.random.split(key, 3)
        inner = 4 * positions
        self.across = normal(first, (positions, inner), positions)
        self.back = normal(second, (inner, positions), inner)
        self.feed = Feed(width, hidden, third)

    def recall(self, x: Field) -> tuple[Field, Field]:
        return x, self.feed.recall(x)

    def __call__(self, h: Field, recalled: tuple[Field, Field]) -> Field:
        x, fed = recalled
        flat = jnp.swapaxes((h + x).reshape(h.shape[0], self.across.shape[0], -1), 1, 2)
        mixed = jax.nn.gelu(flat @ self.across) @ self.back
        return self.feed(unit(h + jnp.swapaxes(mixed, 1, 2).reshape(h.shape)), fed)
