"""A memory of perturbations, one for each training example, on the device.

Between two visits of an example a network changes little, so where the last attack on it ended is a far better place
to begin than a random one, and a few steps do what forty did. The memory is a tree of arrays: it is part of the state
of a training, so of its checkpoints too, and all functions here are pure.

It is bounded: a memory of `size` rows for more examples than that gives an example the row `number % size`, and the
row belongs to the example that was stored last. A perturbation fits the image as it was when it was found: `view` says
how the image was augmented, and one stored for another view is not recalled.

Perturbations are kept in half precision, which is half the memory and half the checkpoint. What that loses is far less
than one step of an attack, which projects its start anyway.
"""

from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp

from ._attack import AttackError

Policy = Literal["uniform", "hardest", "oldest"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

_NOBODY = -1
_UNSEEN_FIRST = 1000.0  # Above every logarithm of a loss, and still fine enough for a draw among the unseen.


class Replay(NamedTuple):
    """Rows of the memory: whose it is, what was found, for which view, its loss then, and when (by `clock`)."""

    owner: jax.Array
    deltas: jax.Array
    view: jax.Array
    loss: jax.Array
    stored: jax.Array
    clock: jax.Array

    @property
    def age(self) -> jax.Array:
        """For how many stores each row has been as it is; that of an empty row is more than all others."""
        return jnp.where(self.owner == _NOBODY, self.clock + 1, self.clock - self.stored)


def empty(size: int, shape: tuple[int, ...]) -> Replay:
    """A memory of `size` rows that knows nothing; `shape` is that of one image.

    >>> empty(100, (8, 8, 1)).deltas.shape
    (100, 8, 8, 1)
    """
    if size < 1:
        raise AttackError(f"expected a memory of at least one row, found {size}; give a positive size")
    return Replay(
        owner=jnp.full(size, _NOBODY, jnp.int32),
        deltas=jnp.zeros((size, *shape), jnp.float16),
        view=jnp.zeros(size, jnp.int32),
        loss=jnp.zeros(size, jnp.float32),
        stored=jnp.zeros(size, jnp.int32),
        clock=jnp.int32(0),
    )


def recall(memory: Replay, examples: jax.Array, view: jax.Array | int = 0) -> tuple[jax.Array, jax.Array]:
    """The perturbations remembered for these examples in this view, and which of them are known at all.

    >>> memory = store(empty(10, (2,)), jnp.array([3]), jnp.full((1, 2), 0.5), jnp.array([1.0]))
    >>> deltas, known = recall(memory, jnp.array([3, 4]))
    >>> known.tolist(), deltas[0].tolist()
    ([True, False], [0.5, 0.5])
    """
    rows = examples % memory.owner.shape[0]
    known = (memory.owner[rows] == examples) & (memory.view[rows] == view)
    return memory.deltas[rows].astype(jnp.float32), known


def store(
    memory: Replay,
    examples: jax.Array,
    deltas: jax.Array,
    loss: jax.Array,
    view: jax.Array | int = 0,
) -> Replay:
    """The memory with what was found for these examples, which all differ. Of two that would need the same row, the
    one with the larger number gets it.

    >>> memory = store(empty(2, (1,)), jnp.array([0, 2, 1]), jnp.ones((3, 1)), jnp.zeros(3))
    >>> memory.owner.tolist()
    [2, 1]
    """
    size = memory.owner.shape[0]
    rows = examples % size
    winner = jnp.full(size, _NOBODY, jnp.int32).at[rows].max(examples.astype(jnp.int32))
    # A row outside of the memory is written nowhere. All parts of a row must come from the same example.
    rows = jnp.where(winner[rows] == examples, rows, size)
    clock = memory.clock + 1

    def put(column: jax.Array, values: jax.Array | int) -> jax.Array:
        values = jnp.broadcast_to(jnp.asarray(values, column.dtype), (rows.shape[0], *column.shape[1:]))
        return column.at[rows].set(values, mode="drop")

    return Replay(
        owner=put(memory.owner, examples),
        deltas=put(memory.deltas, deltas),
        view=put(memory.view, view),
        loss=put(memory.loss, loss),
        stored=put(memory.stored, clock),
        clock=clock,
    )


def sample(memory: Replay, key: jax.Array, count: int, policy: Policy = "uniform") -> jax.Array:
    """Numbers of examples to train on next, all different, of those that have a row of their own.

    `uniform`: any. `hardest`: drawn in proportion to the loss at the last attack. `oldest`: those whose attack is the
    longest ago. The last two begin with the examples that were never attacked.

    >>> memory = store(empty(4, (1,)), jnp.array([0, 1, 2]), jnp.ones((3, 1)), jnp.array([0.1, 0.1, 9.0]))
    >>> sample(memory, jax.random.key(0), 2, "hardest").tolist()
    [3, 2]
    """
    size = memory.owner.shape[0]
    if count > size:
        raise AttackError(f"expected at most {size} examples, the rows of the memory, found {count}")
    unseen = memory.owner == _NOBODY
    if policy == "hardest":
        # The largest of logarithms with Gumbel noise are a draw without replacement, by weight.
        weight = jnp.where(unseen, _UNSEEN_FIRST, jnp.log(jnp.maximum(memory.loss, 0.0) + 1e-6))
        scores = weight + jax.random.gumbel(key, (size,))
    elif policy == "oldest":
        scores = memory.age.astype(jnp.float32) + jax.random.uniform(key, (size,))
    else:
        scores = jax.random.uniform(key, (size,))
    rows = jax.lax.top_k(scores, count)[1]
    return jnp.where(unseen[rows], rows, memory.owner[rows])
