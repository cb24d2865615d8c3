"""Adam for several machines, each with its own schedule: in every round the learning rate falls from `first` to `first
* last` times the configured one, exponentially."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

B1 = 0.9
LONG_MEMORY = 0.999
SHORT_MEMORY = 0.99  # In a short round the large gradients of its beginning must be forgotten.


class Paced(NamedTuple):
    """Adam's moments [machines, leaves] and step counts, the steps since the round began, and for each machine its
    schedule in this round and the decay of its second moment."""

    mean: Any
    square: Any
    count: Any
    since: Any
    first: Any
    last: Any
    b2: Any


def paced_adam(learning_rate: Any, machines: int, round_steps: int) -> optax.GradientTransformation:
    """An optimizer for params {"leaves": [machines, leaves], ...}."""

    def init(params: Any) -> Paced:
        zeros, one = jnp.zeros_like(params["leaves"]), jnp.ones(machines)
        return Paced(zeros, zeros, jnp.zeros(machines), jnp.zeros(()), one, one, LONG_MEMORY * one)

    def adam(gradient: jax.Array, state: optax.ScaleByAdamState, b2: jax.Array) -> Any:
        return optax.scale_by_adam(B1, b2).update(gradient, state)  # pyright: ignore[reportArgumentType]

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Paced]:
        moments = optax.ScaleByAdamState(state.count, state.mean, state.square)
        direction, new = jax.vmap(adam)(updates["leaves"], moments, state.b2)
        pace = state.first * state.last ** (state.since / round_steps)
        direction = -learning_rate * (pace[:, None] * direction)
        moved = state._replace(mean=new.mu, square=new.nu, count=new.count, since=state.since + 1)
        return jax.tree.map(lambda _: direction, updates), moved

    return optax.GradientTransformation(init, update)


def forget(state: Paced, kept: np.ndarray, new: np.ndarray) -> Paced:
    """The state at the beginning of a round: without the moments of pruned links, and reset for the `new` machines."""
    known = kept & ~new[:, None]
    count = np.where(new, 0, state.count).astype(np.float32)
    mean, square = (np.asarray(x) * known for x in (state.mean, state.square))
    return state._replace(mean=mean, square=square, count=count, since=np.zeros_like(state.since))
