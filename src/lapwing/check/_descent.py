"""Do the updates of the optimizer go downhill? Nothing of the model is compiled: the gradient is drawn at random."""

from typing import Any

import jax
import jax.numpy as jnp

from lapwing.train import Aux

from ._report import Report, fail
from ._training import Training

_UPDATES = (
    64  # Enough for one that accumulates gradients, or climbs now and then (sharpness-aware minimization).
)


def descends(training: Training) -> Report:
    """A gradient that is the same at each step must be followed downhill.

    The parameters begin at zero, where weight decay moves nothing.
    """
    gradient = _random_like(training.params, training.mask)
    state = training.state._replace(params=jax.tree.map(jnp.zeros_like, training.params))
    update = jax.jit(
        lambda state: training.phases.update(state, jnp.ones(()), Aux({}, state.model), gradient)[0]
    )
    for _ in range(_UPDATES):
        state = update(state)
    leaves = zip(jax.tree.leaves(state.params), jax.tree.leaves(training.mask), strict=True)
    rise = float(_product(gradient, [leaf for leaf, train in leaves if train is not False]))
    if rise > 0:
        fail(
            "can_learn",
            "the updates of the optimizer point uphill: they are added to the parameters, and increase the loss",
            "the sign of Task.optimizer: it should end with the learning rate and its minus sign, as optax.adam(1e-3) "
            "does and optax.scale_by_adam() does not; write optimizer=optax.adam, or optimizer=lambda learning_rate: "
            "optax.chain(optax.scale_by_adam(), optax.scale_by_learning_rate(learning_rate))",
        )
    return Report("can_learn", "the updates of the optimizer point downhill", {"rise": rise})


def _random_like(params: Any, mask: Any) -> Any:
    """Normal numbers for what is trained, None for the rest."""
    keys = iter(jax.random.split(jax.random.key(0), len(jax.tree.leaves(params))))
    return jax.tree.map(
        lambda leaf, train: None if train is False else jax.random.normal(next(keys), leaf.shape, leaf.dtype),
        params,
        mask,
    )


def _product(gradient: Any, moved: Any) -> jax.Array:
    """How far the parameters moved along the gradient."""
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(moved), strict=True)
    return jnp.sum(jnp.stack([jnp.vdot(slope, move).astype(jnp.float32) for slope, move in pairs]))
