"""Balls around images: where an attack may begin, in which direction it steps, and how it stays inside.

Every function works on a batch, example by example: the first axis is never summed over.
"""

from typing import Literal

import jax
import jax.numpy as jnp

Norm = Literal["linf", "l2"]

_TINY = 1e-12


def lengths(deltas: jax.Array, norm: Norm) -> jax.Array:
    """The norm of each example's perturbation.

    >>> lengths(jnp.array([[3.0, -4.0], [0.0, 1.0]]), "l2").tolist(), lengths(jnp.array([[3.0, -4.0]]), "linf").tolist()
    ([5.0, 1.0], [4.0])
    """
    flat = deltas.reshape(deltas.shape[0], -1)
    return jnp.max(jnp.abs(flat), axis=1) if norm == "linf" else jnp.sqrt(jnp.sum(flat**2, axis=1))


def random_in_ball(keys: jax.Array, shape: tuple[int, ...], eps: jax.Array, norm: Norm) -> jax.Array:
    """A point of the ball for each key, all points being equally likely; `shape` is that of one example."""

    def in_cube(key: jax.Array) -> jax.Array:
        return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)

    def in_sphere(key: jax.Array) -> jax.Array:
        of_direction, of_radius = jax.random.split(key)
        direction = jax.random.normal(of_direction, shape)
        # The volume grows with this power of the radius.
        radius = jax.random.uniform(of_radius) ** (1 / max(1, direction.size))
        return radius * direction / jnp.maximum(jnp.sqrt(jnp.sum(direction**2)), _TINY)

    return eps * jax.vmap(in_cube if norm == "linf" else in_sphere)(keys)


def steepest(slopes: jax.Array, norm: Norm) -> jax.Array:
    """The direction of length 1 along which the loss of each example rises fastest; none where it is flat."""
    if norm == "linf":
        return jnp.sign(slopes)
    # Scaled by the largest entry first: the squares of small slopes would vanish.
    largest = _per_example(lengths(slopes, "linf"), slopes)
    scaled = slopes / jnp.where(largest > 0, largest, 1.0)
    return scaled / jnp.maximum(_per_example(lengths(scaled, "l2"), slopes), _TINY)


def project(
    deltas: jax.Array, images: jax.Array, eps: jax.Array, norm: Norm, box: tuple[float, float]
) -> jax.Array:
    """The perturbations moved into the ball, and then so that the images stay in the box.

    For an image in the box, the second makes no perturbation longer.
    """
    if norm == "linf":
        deltas = jnp.clip(deltas, -eps, eps)
    else:
        length = lengths(deltas, "l2")
        deltas = deltas * _per_example(jnp.where(length > eps, eps / jnp.maximum(length, _TINY), 1.0), deltas)
    return jnp.clip(images + deltas, *box) - images


def _per_example(values: jax.Array, like: jax.Array) -> jax.Array:
    return values.reshape(-1, *[1] * (like.ndim - 1))
