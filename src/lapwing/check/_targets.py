"""Networks that no gradient trains: the target network of Q-learning, a teacher that is a moving average."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from lapwing.core import format_list

from ._jaxprs import inputs_of_outputs
from ._partition import by_path, parameters_in, scalar_of
from ._report import CheckInputError, Report, fail

_TARGET = re.compile(
    r"(^|[^a-z])(target|ema|teacher|averaged?|slow|momentum|polyak)([^a-z]|$)", re.IGNORECASE
)


def targets(loss: Callable[..., Any], params: PyTree, target: PyTree, *args: Any) -> Report:
    """The gradient of `loss(params, target, *args)` with respect to the target network must be zero.

    >>> import jax, jax.numpy as jnp
    >>> def loss(w, target, x, stop):
    ...     goal = jnp.tanh(x * target)
    ...     return jnp.mean((x * w - (jax.lax.stop_gradient(goal) if stop else goal)) ** 2)
    >>> print(targets(lambda *given: loss(*given, True), jnp.ones(2), jnp.ones(2), jnp.ones(2)))
    targets: no gradient reaches the target network (1 leaves)
    >>> targets(lambda *given: loss(*given, False), jnp.ones(2), jnp.ones(2), jnp.ones(2))
    Traceback (most recent call last):
    lapwing.check._report.CheckError: a gradient reaches the target network: target. Look at ...
    """
    chosen = parameters_in(target)

    def gradient(leaves: Any, params: Any, *args: Any) -> Any:
        return jax.grad(lambda leaves: scalar_of(loss(params, chosen.combine(leaves), *args)))(leaves)

    alive = inputs_of_outputs(gradient, list(chosen.leaves), params, *args)
    paths = [path.replace("params", "target", 1) for path in chosen.paths]
    check_alive([path for path, depends in zip(paths, alive, strict=True) if depends], "the target network")
    return Report(
        "targets", f"no gradient reaches the target network ({len(paths)} leaves)", {"leaves": len(paths)}
    )


def check_alive(alive: Sequence[str], what: str) -> None:
    if alive:
        fail(
            "targets",
            f"a gradient reaches {what}: {format_list(list(alive), 4)}",
            "the target: jax.lax.stop_gradient around what is computed with it, or trainable(params) that is False for "
            "it; it should move by its own rule only",
            alive,
        )


def target_networks(params: PyTree) -> list[str]:
    """The leaves of what is called a target, teacher or average among the parameters, if it has a twin that is not."""
    leaves = by_path(params, "params")
    shapes = [np.shape(leaf) for path, leaf in leaves.items() if not _is_target(path)]
    found = [path for path in leaves if _is_target(path)]
    if not found or any(np.shape(leaves[path]) not in shapes for path in found):
        raise CheckInputError(
            "no part of the parameters is called a target, a teacher or an average of another"
        )
    return found


def _is_target(path: str) -> bool:
    return bool(_TARGET.search(path.removeprefix("params")))
