"""Do the updates of the optimizer go downhill? Nothing of the model is compiled: the gradient is drawn at random."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.core import format_list
from lapwing.train import Aux

from ._partition import by_path
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
    slopes = by_path(gradient, "params")
    moved = {path: leaf for path, leaf in by_path(state.params, "params").items() if path in slopes}
    rises = {path: _product(slopes[path], leaf) for path, leaf in moved.items()}
    raw = [path for path, leaf in moved.items() if np.allclose(leaf, _UPDATES * slopes[path], rtol=1e-3)]
    if raw and any(rise < 0 for rise in rises.values()):
        fail(
            "can_learn",
            f"the updates of {format_list(raw, 4)} point uphill, and others downhill: the optimizer hands on the raw "
            "gradients of these leaves, and a step adds them to the parameters, as with a learning rate of −1",
            "optax.masked, which passes the gradients of the leaves outside of its mask as they are; to freeze those, "
            "let trainable be False for them, or write optax.multi_transform with optax.set_to_zero()",
            raw,
        )
    rise = sum(rises.values())
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


def _product(gradient: Any, moved: Any) -> float:
    """How far the parameters moved along the gradient."""
    return float(jnp.vdot(gradient, moved).astype(jnp.float32))
