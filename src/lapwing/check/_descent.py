"""Do the updates of the optimizer go downhill? Nothing of the model is compiled: the gradient is drawn at random."""

from collections.abc import Sequence
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
_ALONG = 0.2
_SIZES, _FAR = np.geomspace(0.01, 30.0, 12), 3.0


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
    climbs = [path for path, leaf in moved.items() if _cosine(slopes[path], leaf) > _ALONG]
    return Report(
        "can_learn", "the updates of the optimizer point downhill", {"rise": rise, "climbs": climbs}
    )


def check_climbs(training: Training, climbs: Sequence[str]) -> None:
    """Raises if a leaf is moved uphill and its loss has a lowest value that it moves away from.

    What is maximized on purpose, such as a multiplier or a critic, has none: its loss falls without end.
    """
    if not climbs:
        return
    leaves, structure = jax.tree.flatten(training.params)
    names = list(by_path(training.params, "params"))
    gradient = by_path(jax.jit(jax.grad(training.one_loss))(training.params, training.batch()), "params")
    loss = jax.jit(training.one_loss)

    def along(path: str, size: float) -> float:
        slope = gradient[path]
        direction = slope / jnp.sqrt(jnp.mean(slope**2))
        moved = [
            leaf + size * direction if name == path else leaf
            for name, leaf in zip(names, leaves, strict=True)
        ]
        return float(loss(jax.tree.unflatten(structure, moved), training.batch()))

    found = []
    for path in climbs:
        if not np.any(gradient[path]) or not np.isfinite(gradient[path]).all():
            continue
        start, most = along(path, 0.0), along(path, _FAR)
        # Downhill the loss falls to its lowest value and rises again; uphill it only rises.
        lower = [along(path, -size) for size in _SIZES]
        if min(lower) < start < min(most, max(lower[int(np.argmin(lower)) :])):
            found.append(path)
    if found:
        fail(
            "can_learn",
            f"the updates of {format_list(found, 4)} point uphill, and others downhill: the loss has a lowest value in "
            "the other direction, and a step moves away from it",
            "the sign of the optimizer of that group: its chain should end with a minus sign, as "
            "optax.scale_by_learning_rate(…) or optax.scale(-…) has it; name what is maximized on purpose in "
            "Task.expected_findings",
            found,
        )


def _random_like(params: Any, mask: Any) -> Any:
    """Normal numbers for what is trained, None for the rest."""
    keys = iter(jax.random.split(jax.random.key(0), len(jax.tree.leaves(params))))
    return jax.tree.map(
        lambda leaf, train: None if train is False else jax.random.normal(next(keys), leaf.shape, leaf.dtype),
        params,
        mask,
    )


def _cosine(gradient: Any, moved: Any) -> float:
    """How much of a movement is along the gradient."""
    both = float(jnp.linalg.norm(gradient.ravel()) * jnp.linalg.norm(jnp.ravel(moved)))
    return _product(gradient, moved) / both if both > 0 else 0.0


def _product(gradient: Any, moved: Any) -> float:
    """How far the parameters moved along the gradient."""
    return float(jnp.vdot(gradient, moved).astype(jnp.float32))
