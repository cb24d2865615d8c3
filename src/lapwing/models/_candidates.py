"""A block with a vector for each candidate: each class that a position may have, as people pencil them into a Sudoku.

A candidate sees the other candidates of its position, and the same class at the positions of each of its groups. It
learns what a clue rules out once, not once for every digit and place: renaming the classes, or exchanging positions so
that groups stay groups, does the same to the answer. So 1,000 puzzles teach as much as all of their equal forms.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ._layer import normal

Groups = tuple[tuple[int, ...], ...]
"""Kinds of groups, and for each of them the number of the group in which a position is."""

OPEN, OTHER, GIVEN = range(3)
"""What an input says of a candidate: nothing, that another one of its position is given, that it is given."""

Vectors = Float[Array, "count *positions classes width"]


def said_of_candidates(
    tokens: Int[Array, " count *positions"], first: int, classes: int
) -> Int[Array, " count *positions classes"]:
    """What the tokens say of each candidate, where token `first + c` gives the class c.

    >>> said_of_candidates(jnp.array([[1, 3]]), first=2, classes=3).tolist()
    [[[0, 0, 0], [1, 2, 1]]]
    """
    tokens = tokens[..., None]
    given = jnp.where(tokens - first == jnp.arange(classes), GIVEN, OTHER)
    return jnp.where(tokens < first, OPEN, given)


class Candidates(eqx.Module):
    """A candidate sees sums over the candidates of its position and over the same class in each of its groups.

    >>> block = Candidates(8, 16, jax.random.key(0), groups=((0, 0, 1), (0, 1, 1)))
    >>> h = jax.random.normal(jax.random.key(1), (4, 3, 5, 8))
    >>> block(h, block.recall(h)).shape
    (4, 3, 5, 8)
    """

    message: Float[Array, "width width"]
    of_state: Float[Array, "width hidden"]
    of_position: Float[Array, "width hidden"]
    of_group: Float[Array, "kinds width hidden"]
    of_input: Float[Array, "width hidden"]
    bias: Float[Array, " hidden"]
    narrow: Float[Array, "hidden width"]
    groups: Groups = eqx.field(static=True)

    def __init__(self, width: int, hidden: int, key: Key[Array, ""], groups: Groups):
        keys = jax.random.split(key, 6)
        seen = 2 + len(groups)
        self.message = normal(keys[0], (width, width), width)
        self.of_state = normal(keys[1], (width, hidden), seen * width)
        self.of_position = normal(keys[2], (width, hidden), seen * width)
        self.of_group = normal(keys[3], (len(groups), width, hidden), seen * width)
        self.of_input = normal(keys[4], (width, hidden), seen * width)
        self.bias = jnp.zeros(hidden)
        self.narrow = normal(keys[5], (hidden, width), hidden)
        self.groups = groups

    def recall(self, x: Vectors) -> Float[Array, "count *positions classes hidden"]:
        return x @ self.of_input + self.bias

    def __call__(self, h: Vectors, recalled: Float[Array, "count *positions classes hidden"]) -> Vectors:
        flat = (h.shape[0], len(self.groups[0]), h.shape[-2], -1)
        return self._step(h.reshape(flat), recalled.reshape(flat)).reshape(h.shape)

    def _step(
        self,
        h: Float[Array, "count positions classes width"],
        recalled: Float[Array, "count positions classes hidden"],
    ) -> Float[Array, "count positions classes width"]:
        message = jax.nn.gelu(h @ self.message)
        member = membership(self.groups)
        # A sum of n like numbers, over their square root, is of the size of one that is random.
        sums = jnp.einsum("gp,npcw->ngcw", _scaled(member).astype(h.dtype), message)
        kinds = sums.reshape(len(h), len(self.groups), -1, *sums.shape[2:])
        of_groups = jnp.einsum("nkgcw,kwh->nkgch", kinds, self.of_group).reshape(*sums.shape[:3], -1)
        spread = jnp.einsum("gp,ngch->npch", member.astype(h.dtype), of_groups)
        of_position = jnp.sum(message, axis=2, keepdims=True) * h.shape[2] ** -0.5 @ self.of_position
        hidden = jax.nn.gelu(h @ self.of_state + spread + of_position + recalled)
        return h + hidden @ self.narrow


def membership(groups: Groups) -> Float[np.ndarray, "groups positions"]:
    """1 where a position is in a group, for the groups of all kinds; each kind has as many as the largest.

    >>> membership(((0, 0, 1), (0, 1, 1))).astype(int).tolist()
    [[1, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 1]]
    """
    numbers = np.array(groups)
    same = numbers[:, None, :] == np.arange(numbers.max() + 1)[:, None]
    return same.reshape(-1, numbers.shape[1]).astype(np.float32)


def _scaled(member: Float[np.ndarray, "groups positions"]) -> Float[np.ndarray, "groups positions"]:
    return member / np.sqrt(np.maximum(member.sum(axis=1, keepdims=True), 1))
