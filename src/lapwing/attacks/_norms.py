"""Norms: how a perturbation is measured, and so which ball an attack stays in.

A norm is an object with the four methods of `Norm`; any such object is accepted wherever `"linf"`, `"l2"` or `"l1"`
is. The box of valid pixels is not a norm's business: an attack clips to it after `project`, which makes no perturbation
of an image inside the box longer.
"""

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Shaped

NormName = Literal["linf", "l2", "l1"]
"""The short forms of the norms that Lapwing has; any other is an object with the methods of `Norm`."""
Batch = Float[Array, "examples ..."]

_TINY = 1e-12
_HALVINGS = 26  # The bits of a float32, and some.


class Norm(Protocol):
    """What an attack asks of a norm. Batches have the example as their first axis, which is never summed over.

    A norm is part of an `Attack`, which is a static argument of compiled functions, so it must be hashable: a frozen
    dataclass is.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Darker(Linf):
    ...     '''Pixels that may only become darker.'''
    ...     def project(self, deltas, eps):
    ...         return jnp.minimum(super().project(deltas, eps), 0.0)
    >>> Darker().project(jnp.array([[0.5, -0.5]]), jnp.float32(0.25)).tolist()
    [[0.0, -0.25]]
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
        return jnp.max(jnp.abs(flat(deltas)), axis=1)

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
        return jnp.sqrt(jnp.sum(flat(deltas) ** 2, axis=1))

    def project(self, deltas: Batch, eps: Float[Array, ""]) -> Batch:
        length = self.length(deltas)
        return deltas * per_example(jnp.where(length > eps, eps / jnp.maximum(length, _TINY), 1.0), deltas)

    def steepest(self, gradient: Batch) -> Batch:
        # Scaled by the largest entry first: the squares of small gradients would underflow.
        largest = per_example(Linf().length(gradient), gradient)
        scaled = gradient / jnp.where(largest > 0, largest, 1.0)
        return scaled / jnp.maximum(per_example(self.length(scaled), gradient), _TINY)

    def sample(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        direction_key, radius_key = jax.random.split(key)
        direction = jax.random.normal(direction_key, shape)
        # The volume grows with this power of the radius.
        radius = jax.random.uniform(radius_key) ** (1 / max(1, direction.size))
        return radius * direction / jnp.maximum(jnp.sqrt(jnp.sum(direction**2)), _TINY)


@dataclass(frozen=True)
class L1:
    """The sum of absolute values.

    >>> L1().length(jnp.array([[3.0, -4.0], [0.0, 1.0]])).tolist()
    [7.0, 1.0]
    """

    def length(self, deltas: Batch) -> Float[Array, " examples"]:
        return jnp.sum(jnp.abs(flat(deltas)), axis=1)

    def project(self, deltas: Batch, eps: Float[Array, ""]) -> Batch:
        return jnp.sign(deltas) * shrink(jnp.abs(flat(deltas)), None, eps).reshape(deltas.shape)

    def steepest(self, gradient: Batch) -> Batch:
        rows = flat(gradient)
        largest = jnp.arange(rows.shape[1]) == jnp.argmax(jnp.abs(rows), axis=1)[:, None]
        return jnp.where(largest, jnp.sign(rows), 0.0).reshape(gradient.shape)

    def sample(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        # Exponential variables divided by their sum, with one more than there are values, are uniform in the simplex.
        sizes_key, signs_key = jax.random.split(key)
        sizes = jax.random.exponential(sizes_key, (math.prod(shape) + 1,))
        signs = jax.random.rademacher(signs_key, shape, sizes.dtype)
        return signs * (sizes[:-1] / jnp.sum(sizes)).reshape(shape)


def shrink(
    sizes: Float[Array, "examples values"],
    room: Float[Array, "examples values"] | None,
    eps: Float[Array, ""],
) -> Float[Array, "examples values"]:
    """The Euclidean projection of non-negative `sizes` onto those of at most `room` each and `eps` in all.

    The solution is `min(max(sizes - t, 0), room)` for one `t` per example. Halving finds the piece of this piecewise
    linear function on which `t` is, and there it is the solution of a linear equation. This needs no sort, which is
    slow on all devices.

    >>> shrink(jnp.array([[3.0, 1.0]]), jnp.array([[1.5, 9.0]]), jnp.float32(2.0)).tolist()
    [[1.5, 0.5]]
    """
    most = jnp.inf if room is None else room

    def shrunk(t: Float[Array, " examples"]) -> Float[Array, "examples values"]:
        return jnp.clip(sizes - t[:, None], 0.0, most)

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        above = jnp.sum(shrunk(middle), axis=1) > eps
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    zero = jnp.zeros(sizes.shape[0], sizes.dtype)
    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (zero, jnp.max(sizes, axis=1)))
    excess = sizes - ((low + high) / 2)[:, None]
    free, full = (excess > 0) & (excess < most), (excess > 0) & (excess >= most)
    total = jnp.sum(jnp.where(free, sizes, 0.0) + jnp.where(full, most, 0.0), axis=1)
    count = jnp.sum(free, axis=1)
    exact = jnp.where(count > 0, (total - eps) / jnp.maximum(count, 1), high)
    inside = jnp.sum(shrunk(zero), axis=1) <= eps
    result = shrunk(jnp.where(inside, zero, exact))
    return result * jnp.minimum(1.0, eps / jnp.maximum(jnp.sum(result, axis=1), _TINY))[:, None]


_BY_NAME: dict[NormName, Norm] = {"linf": Linf(), "l2": L2(), "l1": L1()}


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


def flat(batch: Batch) -> Float[Array, "examples values"]:
    """The values of each example in one row."""
    return batch.reshape(batch.shape[0], -1)


def per_example(values: Shaped[Array, " examples"], like: Batch) -> Shaped[Array, "examples ..."]:
    """One value per example, in a shape that broadcasts against the batch `like`."""
    return values.reshape(-1, *[1] * (like.ndim - 1))
