"""A buffer of perturbations, one for each training example, on the device.

Between two visits of an example a network changes little, so the end of the last attack on it is a far better start
than a random point, and a few steps do what forty did. The buffer is a pytree of arrays: part of the training state and
of its checkpoints.

It is bounded: with more examples than rows, example n uses row `n % size`, which holds the example stored last. A
perturbation fits the image it was found for: `view` identifies the augmentation, and another view's is not recalled.

Perturbations are stored in float16, half the memory and half the checkpoint. The rounding is far smaller than one step
of an attack, which projects its start anyway.
"""

from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float16, Int, Key

from ._attack import AttackError

Policy = Literal["uniform", "hardest", "oldest"]
"""Which perturbations a replay buffer gives back: any, those with the highest loss, or the oldest."""
POLICIES: tuple[Policy, ...] = get_args(Policy)
"""The names of the policies of a replay buffer."""

_NOBODY = -1
_UNSEEN_FIRST = 1000.0  # Above every log of a loss, and still fine enough for a draw among the unseen.


class ReplayBuffer(NamedTuple):
    """Rows: the example that owns each, its perturbation, view and loss, and the `clock` when it was stored.

    >>> buffer = ReplayBuffer.empty(10, (2,))
    >>> buffer = buffer.store(jnp.array([3]), jnp.full((1, 2), 0.5), jnp.array([1.0]))
    >>> deltas, known = buffer.recall(jnp.array([3, 4]))
    >>> known.tolist(), deltas[0].tolist()
    ([True, False], [0.5, 0.5])
    """

    owner: Int[Array, " rows"]
    deltas: Float16[Array, "rows ..."]
    view: Int[Array, " rows"]
    loss: Float[Array, " rows"]
    stored: Int[Array, " rows"]
    clock: Int[Array, ""]

    @classmethod
    def empty(cls, size: int, shape: tuple[int, ...]) -> "ReplayBuffer":
        """A buffer of `size` empty rows, for images of this shape."""
        if size < 1:
            raise AttackError(f"expected a buffer of at least one row, found {size}; give a positive size")
        return cls(
            owner=jnp.full(size, _NOBODY, jnp.int32),
            deltas=jnp.zeros((size, *shape), jnp.float16),
            view=jnp.zeros(size, jnp.int32),
            loss=jnp.zeros(size, jnp.float32),
            stored=jnp.zeros(size, jnp.int32),
            clock=jnp.int32(0),
        )

    @property
    def age(self) -> Int[Array, " rows"]:
        """Stores since each row was written; empty rows are older than all others."""
        return jnp.where(self.owner == _NOBODY, self.clock + 1, self.clock - self.stored)

    def recall(
        self, examples: Int[Array, " examples"], view: Int[Array, " examples"] | int = 0
    ) -> tuple[Float[Array, "examples ..."], Bool[Array, " examples"]]:
        """The perturbations stored for these examples in this view, and which of them are known."""
        rows = examples % self.owner.shape[0]
        known = (self.owner[rows] == examples) & (self.view[rows] == view)
        return self.deltas[rows].astype(jnp.float32), known

    def store(
        self,
        examples: Int[Array, " examples"],
        deltas: Float[Array, "examples ..."],
        loss: Float[Array, " examples"],
        view: Int[Array, " examples"] | int = 0,
    ) -> "ReplayBuffer":
        """The buffer with the results for these examples, all different. Of two that share a row, the one with the
        larger number gets it.

        >>> buffer = ReplayBuffer.empty(2, (1,)).store(jnp.array([0, 2, 1]), jnp.ones((3, 1)), jnp.zeros(3))
        >>> buffer.owner.tolist()
        [2, 1]
        """
        size = self.owner.shape[0]
        rows = examples % size
        winner = jnp.full(size, _NOBODY, jnp.int32).at[rows].max(examples.astype(jnp.int32))
        # Losers go to a row past the end, which is dropped: all fields of a row must come from the same example.
        rows = jnp.where(winner[rows] == examples, rows, size)
        clock = self.clock + 1

        def put(column: Array, values: Array | int) -> Array:
            values = jnp.broadcast_to(jnp.asarray(values, column.dtype), (rows.shape[0], *column.shape[1:]))
            return column.at[rows].set(values, mode="drop")

        return ReplayBuffer(
            owner=put(self.owner, examples),
            deltas=put(self.deltas, deltas),
            view=put(self.view, view),
            loss=put(self.loss, loss),
            stored=put(self.stored, clock),
            clock=clock,
        )

    def sample(self, key: Key[Array, ""], count: int, policy: Policy = "uniform") -> Int[Array, " count"]:
        """Different examples to train on next, among those that have a row of their own.

        `uniform`: all alike. `hardest`: in proportion to the loss of the last attack. `oldest`: those attacked longest
        ago. The last two start with the examples that were never attacked.

        >>> buffer = ReplayBuffer.empty(4, (1,))
        >>> buffer = buffer.store(jnp.array([0, 1, 2]), jnp.ones((3, 1)), jnp.array([0.1, 0.1, 9.0]))
        >>> buffer.sample(jax.random.key(0), 2, "hardest").tolist()
        [3, 2]
        """
        size = self.owner.shape[0]
        if count > size:
            raise AttackError(f"expected at most {size} examples, the rows of the buffer, found {count}")
        unseen = self.owner == _NOBODY
        if policy == "hardest":
            # The top k of logs plus Gumbel noise are a draw without replacement, by weight.
            weight = jnp.where(unseen, _UNSEEN_FIRST, jnp.log(jnp.maximum(self.loss, 0.0) + 1e-6))
            scores = weight + jax.random.gumbel(key, (size,))
        elif policy == "oldest":
            scores = self.age.astype(jnp.float32) + jax.random.uniform(key, (size,))
        else:
            scores = jax.random.uniform(key, (size,))
        rows = jax.lax.top_k(scores, count)[1]
        return jnp.where(unseen[rows], rows, self.owner[rows])
