"""Scalar functions that work on Python floats, numpy numbers and jax tracers alike.

At a kink the gradient is 0, as on its flat side.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

Ties = str  # "shared" | "last"


def where(condition: Any, yes: Any, no: Any) -> Any:
    if isinstance(condition, jax.Array):
        return jnp.where(condition, yes, no)
    return yes if condition else no


def relu(x: Any) -> Any:
    return where(x > 0, x, 0.0)


def governed(x: Any, limit: float | None) -> Any:
    """The number clipped to ±limit; beyond it the gradient is zero."""
    if limit is None:
        return x
    return where(x > limit, limit, where(x < -limit, -limit, x))


def stopped(x: Any) -> Any:
    """The number without its gradient."""
    return jax.lax.stop_gradient(x) if isinstance(x, jax.Array) else x


def size(x: jax.Array) -> jax.Array:
    """|x|, with the gradient 0 at 0: a zero leaf must be like a missing key."""
    return x * jnp.sign(x)


def largest(numbers: Sequence[Any], ties: Ties) -> Any:
    """The largest |x|, or 0 without numbers. In a tie the gradient is shared, or goes to the last of the largest."""
    if not any(isinstance(x, jax.Array) for x in numbers):
        return max((abs(x) for x in numbers), default=0.0)
    sizes = size(jnp.stack(numbers))
    if ties == "shared":
        return jnp.max(sizes)
    return sizes[len(numbers) - 1 - jnp.argmax(sizes[::-1])]
