"""Norms: how a perturbation is measured, and so which ball an attack stays in.

A norm is an object with the four methods of `Norm`; any such object is accepted wherever `"linf"` or `"l2"` is. The box
of valid pixels is not a norm's business: an attack clips to it after `project`, which makes no perturbation of an image
inside the box longer.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

NormName = Literal["linf", "l2"]
"""The short forms of the norms that Lapwing has; any other is an object with the methods of `Norm`."""
Batch = Float[Array, "examples ..."]

_TINY = 1e-12


class Norm(Protocol):
    """What an attack asks of a norm. Batches have the example as their first axis, which is never summed over.

    A norm is part of an `Attack`, which is a static argument of compiled functions, so it must be hashable: a frozen
    dataclass is.
    """

    def length(self, deltas: Batch) -> Float[Array, " examples"]:
        """The norm of each example."""
        ...

    def project(self, deltas: Batch, eps: Float[Array, ""]) -> Batch:
        """Perturbations moved into the ball of radius `eps`."""
        ...

    def steepest(self, gradient: Batch) -> Batch:
        """For each example the direction of norm 1 in which its loss rises fastest; 0 where the gradient is 0."""
        ...

    def sample(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        """A random point of the unit ball, for one example of this shape."""
        ...


@dataclass(frozen=True)
class Linf:
    """The largest absolute value.

    >>> Linf().length(jnp.array([[3.0, -4.0], [0.0, 1.0]])).tolist()
    [4.0, 1.0]
    """

    def length(self, deltas: Batch) -> Float[Array, " examples"]:
        return jnp.max(jnp.abs(_flat(deltas)), axis=1)

    def project(self, deltas: Batch, eps: Float[Array, ""]) -> Batch:
        return jnp.clip(deltas, -eps, eps)

    def steepest(self, gradient: Batch) -> Batch:
        return jnp.sign(gradient)

    def sample(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)


@dataclass(frozen=True)
class L2:
    """The root of the sum of squares.

    >>> L2().length(jnp.array([[3.0, -4.0], [0.0, 1.0]])).tolist()
    [5.0, 1.0]
    """

    def length(self, deltas: Batch) -> Float[Array, " examples"]:
        return jnp.sqrt(jnp.sum(_flat(deltas) ** 2, axis=1))

    def project(self, deltas: Batch, eps: Float[Array, ""]) -> Batch:
        length = self.length(deltas)
        return deltas * _per_example(jnp.where(length > eps, eps / jnp.maximum(length, _TINY), 1.0), deltas)

    def steepest(self, gradient: Batch) -> Batch:
        # Scaled by the largest entry first: the squares of small gradients would underflow.
        largest = _per_example(Linf().length(gradient), gradient)
        scaled = gradient / jnp.where(largest > 0, largest, 1.0)
        return scaled / jnp.maximum(_per_example(self.length(scaled), gradient), _TINY)

    def sample(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        direction_key, radius_key = jax.random.split(key)
        direction = jax.random.normal(direction_key, shape)
        # The volume grows with this power of the radius.
        radius = jax.random.uniform(radius_key) ** (1 / max(1, direction.size))
        return radius * direction / jnp.maximum(jnp.sqrt(jnp.sum(direction**2)), _TINY)


_BY_NAME: dict[NormName, Norm] = {"linf": Linf(), "l2": L2()}


def norm_of(norm: NormName | Norm) -> Norm:
    """The norm behind a short form; a norm itself is returned as it is.

    >>> norm_of("l2")
    L2()
    """
    return _BY_NAME[norm] if isinstance(norm, str) else norm


def is_norm(norm: object) -> bool:
    """Whether this is a norm or the name of one."""
    if isinstance(norm, str):
        return norm in _BY_NAME
    return all(callable(getattr(norm, name, None)) for name in ("length", "project", "steepest", "sample"))


def _flat(batch: Batch) -> Float[Array, "examples values"]:
    return batch.reshape(batch.shape[0], -1)


def _per_example(values: Float[Array, " examples"], like: Batch) -> Float[Array, "examples ..."]:
    return values.reshape(-1, *[1] * (like.ndim - 1))
