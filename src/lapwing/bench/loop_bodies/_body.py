"""What a loop body is: a loss that takes the `scan` to use, and the arguments to call it with.

A body is written as a user would write it, with `scan` in place of `jax.lax.scan`. The gradient is for the first
argument; the others are data. `@body(family, arguments)` adds the function below it to the table by its name.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Loss = Callable[..., Any]


class Draw:
    """Random arguments for one seed. They are made by numpy, so that nothing is compiled for them."""

    def __init__(self, seed: int):
        self.seed = seed
        self._rng = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return scale * self._rng.standard_normal(shape)

    def weight(self, *shape: int, gain: float = 1.0) -> np.ndarray:
        """A matrix whose products keep the size of what they multiply."""
        return self.normal(*shape, scale=gain / shape[-2] ** 0.5)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> np.ndarray:
        return self._rng.uniform(low, high, shape)

    def integers(self, high: int, *shape: int) -> np.ndarray:
        return self._rng.integers(0, high, shape).astype(np.int32)

    def key(self) -> jax.Array:
        return jax.random.key(self.seed)


@dataclasses.dataclass(frozen=True)
class Body:
    """One row of the table."""

    name: str
    family: str
    loss: Loss
    draw: Callable[[Draw], tuple[Any, ...]]
    x64: bool = False
    """Whether it is written for float64."""

    def arguments(self, seed: int = 0) -> tuple[Any, ...]:
        """The arguments of `loss` after `scan`. Those of a float64 body need `jax.enable_x64`."""
        return jax.tree.map(self._on_device, self.draw(Draw(seed)))

    def _on_device(self, leaf: Any) -> jax.Array:
        narrow = isinstance(leaf, np.ndarray) and leaf.dtype == np.float64 and not self.x64
        return jnp.asarray(leaf, jnp.float32) if narrow else jnp.asarray(leaf)


TABLE: dict[str, Body] = {}


def add(name: str, family: str, loss: Loss, draw: Callable[[Draw], tuple[Any, ...]], x64: bool = False):
    """Adds a body to the table."""
    assert name not in TABLE, name
    TABLE[name] = Body(name, family, loss, draw, x64)


def body(family: str, draw: Callable[[Draw], tuple[Any, ...]], x64: bool = False) -> Callable[[Loss], Loss]:
    """Adds the decorated loss to the table, under its own name."""

    def register(loss: Loss) -> Loss:
        add(loss.__name__, family, loss, draw, x64)
        return loss

    return register


def mean_square(*values: jax.Array) -> jax.Array:
    """The loss of most bodies: small, smooth, and every value takes part."""
    return sum((jnp.mean(jnp.square(value)) for value in values), jnp.zeros(()))
