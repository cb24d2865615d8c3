"""How far a loss and its gradients are from those in float64, from the same rounded weights and inputs."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def reference(loss: Callable[..., Any], weights: dict[str, jax.Array], xs: jax.Array) -> tuple[Any, Any]:
    """The loss and its gradients for the weights by `jax.lax.scan` in float64."""
    with jax.enable_x64(True):
        wide, wide_xs = jax.tree.map(lambda value: value.astype(jnp.float64), (weights, xs))
        return jax.device_get(_gradient(loss)(wide, wide_xs))


@functools.cache
def _gradient(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled once for all dtypes that it is the reference of."""
    return jax.jit(jax.value_and_grad(lambda weights, xs: loss(jax.lax.scan, weights, xs)))


def relative_errors(found: tuple[Any, Any], wanted: tuple[Any, Any]) -> dict[str, float]:
    """The norm of the difference over the norm of what is wanted, of the value and of each gradient.

    >>> found = relative_errors((1.0, {"bias": np.array([3.0, 4.4])}), (1.0, {"bias": np.array([3.0, 4.0])}))
    >>> {name: round(error, 3) for name, error in found.items()}
    {'value': 0.0, 'bias': 0.08}
    """
    value, gradients = jax.device_get(found)
    pairs = {"value": (value, wanted[0])} | {name: (gradients[name], wanted[1][name]) for name in gradients}
    return {name: _relative(*pair) for name, pair in pairs.items()}


def _relative(found: Any, wanted: Any) -> float:
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
