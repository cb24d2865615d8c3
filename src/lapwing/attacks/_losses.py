"""What an attack makes large, for each example, and when it has reached its end."""

from typing import Literal

import jax
import jax.numpy as jnp

LossName = Literal["cross_entropy", "margin"]


def cross_entropy(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Minus the logarithm of the probability of each label.

    From the odds against the label, and not as a difference to the sum over all classes: that is 0, and has no slope
    for the label, as soon as a network is surer than a float32 can tell from 1, and then an attack learns nothing.

    >>> cross_entropy(jnp.array([[0.0, 0.0]]), jnp.array([1])).round(3).tolist()
    [0.693...]
    """
    return jax.nn.softplus(jax.nn.logsumexp(_others(scores, labels), axis=1) - _of_labels(scores, labels))


def margin(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """How far the best other class is above the labels; above 0 the labels lose. It never saturates.

    >>> margin(jnp.array([[1.0, 3.0, 2.0]]), jnp.array([1])).tolist()
    [-1.0]
    """
    return jnp.max(_others(scores, labels), axis=1) - _of_labels(scores, labels)


def is_fooled(scores: jax.Array, labels: jax.Array, *, targeted: bool) -> jax.Array:
    """Whether the classifier says what the attack wants. It says the first of the classes with the highest score, as
    when accuracy is counted: a classifier that gives all classes the same score is not right about all.

    >>> is_fooled(jnp.array([[1.0, 2.0], [1.0, 1.0]]), jnp.array([0, 0]), targeted=False).tolist()
    [True, False]
    """
    said = jnp.argmax(scores, axis=1)
    return said == labels if targeted else said != labels


def _of_labels(scores: jax.Array, labels: jax.Array) -> jax.Array:
    # Not by indices: their gradient is a scatter, which is slow.
    return jnp.sum(jnp.where(_is_label(scores, labels), scores, 0.0), axis=1)


def _others(scores: jax.Array, labels: jax.Array) -> jax.Array:
    return jnp.where(_is_label(scores, labels), -jnp.inf, scores)


def _is_label(scores: jax.Array, labels: jax.Array) -> jax.Array:
    return labels[:, None] == jnp.arange(scores.shape[1])


LOSSES = {"cross_entropy": cross_entropy, "margin": margin}
