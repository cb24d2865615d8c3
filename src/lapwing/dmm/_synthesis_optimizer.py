"""Adam for machines side by side, each with a pace of its own: in every round the rate goes from `first` times the
learning rate to `last` times that, evenly in its logarithm."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

B1 = 0.9
LONG_MEMORY, SHORT_MEMORY = (
    0.999,
    0.99,
)  # In a short round the large gradients of its beginning must be forgotten.


class Paced(NamedTuple):
    """The state: what Adam knows [machines, leaves], for how many steps, and for each machine its pace in this round
    and how long the squares of its gradients are remembered."""

    mean: Any
    square: Any
    count: Any
    since: Any
    first: Any
    last: Any
    b2: Any


def paced_adam(
    machines: int, round_steps: int, b1: float = 0.9, b2: float = 0.99
) -> optax.GradientTransformation:
    """An optimizer for params {"leaves": [machines, leaves], ...}, without the learning rate."""

    def init(params: Any) -> Paced:
        leaves = params["leaves"]
        nothing, one = jnp.zeros_like(leaves), jnp.ones(machines)
        return Paced(nothing, nothing, jnp.zeros(machines), jnp.zeros(()), one, one, LONG_MEMORY * one)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Paced]:
        gradient = updates["leaves"]
        b2 = state.b2[:, None]
        mean = B1 * state.mean + (1 - B1) * gradient
        square = b2 * state.square + (1 - b2) * gradient**2
        count = state.count + 1
        unbiased, spread = (x / (1 - b**count)[:, None] for x, b in ((mean, B1), (square, state.b2)))
        pace = state.first * state.last ** (state.since / round_steps)
        direction = pace[:, None] * unbiased / (jnp.sqrt(spread) + 1e-8)
        moved = state._replace(mean=mean, square=square, count=count, since=state.since + 1)
        return jax.tree.map(lambda _: direction, updates), moved

    return optax.GradientTransformation(init, update)


def forget(state: Paced, kept: np.ndarray, new: np.ndarray) -> Paced:
    """At the beginning of a round: without what it knew of links that are gone, and of the `new` machines nothing."""
    known = kept & ~new[:, None]
    count = np.where(new, 0, state.count).astype(np.float32)
    mean, square = (np.asarray(x) * known for x in (state.mean, state.square))
    return state._replace(mean=mean, square=square, count=count, since=np.zeros_like(state.since))
