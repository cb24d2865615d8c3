"""The losses that an attack maximizes, per example, and whether an example is misclassified."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

LossName = Literal["cross_entropy", "margin", "dlr"]
Scores = Float[Array, "examples classes"]
Labels = Int[Array, " examples"]

_TINY = 1e-12


def cross_entropy(scores: Scores, labels: Labels) -> Float[Array, " examples"]:
    """Minus the log-probability of each label.

    Computed from the odds against the label, because the difference of a log-sum-exp and a score is 0, with no
    gradient for the label, as soon as the probability rounds to 1 in float32: an attack would get no signal.

    >>> cross_entropy(jnp.array([[0.0, 0.0]]), jnp.array([1])).round(3).tolist()
    [0.693...]
    """
    return jax.nn.softplus(jax.nn.logsumexp(_others(scores, labels), axis=1) - _of_labels(scores, labels))


def margin(scores: Scores, labels: Labels) -> Float[Array, " examples"]:
    """The best other score minus that of the label: positive where misclassified, and never saturated.

    >>> margin(jnp.array([[1.0, 3.0, 2.0]]), jnp.array([1])).tolist()
    [-1.0]
    """
    return jnp.max(_others(scores, labels), axis=1) - _of_labels(scores, labels)


def dlr(scores: Scores, labels: Labels, targets: Labels | None = None) -> Float[Array, " examples"]:
    """The difference of logits ratio (Croce & Hein 2020): the margin divided by the distance of the best score to the
    third, so that it depends neither on an offset nor on the scale of the scores. Needs 3 classes; with `targets`, the
    class that should win for each example, 4.

    >>> dlr(jnp.array([[1.0, 3.0, 2.0]]), jnp.array([1])).tolist()
    [-0.5]
    >>> dlr(jnp.array([[1.0, 3.0, 2.0, 0.0]]), jnp.array([1]), jnp.array([2])).tolist()
    [-0.4000...]
    """
    if targets is None:
        first, _, third = _largest(scores, 3)
        return margin(scores, labels) / (first - third + _TINY)
    first, _, third, fourth = _largest(scores, 4)
    ahead = _of_labels(scores, targets) - _of_labels(scores, labels)
    return ahead / (first - (third + fourth) / 2 + _TINY)


def _largest(scores: Scores, count: int) -> list[Float[Array, " examples"]]:
    """The largest scores, sorted. Not by sorting, whose gradient is a scatter."""
    found, left = [], scores
    for _ in range(count):
        best = jnp.argmax(left, axis=1)
        found.append(_of_labels(scores, best))
        left = _others(left, best)
    return found


def is_fooled(scores: Scores, labels: Labels, *, targeted: bool) -> Bool[Array, " examples"]:
    """Whether the predicted class is what the attack wants. Ties go to the first class, as in accuracy: a classifier
    with equal scores for all classes is not right about every example.

    >>> is_fooled(jnp.array([[1.0, 2.0], [1.0, 1.0]]), jnp.array([0, 0]), targeted=False).tolist()
    [True, False]
    """
    predicted = jnp.argmax(scores, axis=1)
    return predicted == labels if targeted else predicted != labels


def targets_of(scores: Scores, labels: Labels, rank: Int[Array, ""] | int) -> Labels:
    """For each example the class of the highest score other than the label, or the second highest for rank 1, ...

    >>> targets_of(jnp.array([[1.0, 3.0, 2.0]]), jnp.array([1]), 1).tolist()
    [0]
    """
    order = jnp.argsort(_others(scores, labels), axis=1, descending=True)
    return jnp.take_along_axis(order, jnp.full((len(labels), 1), rank), axis=1)[:, 0]


def _of_labels(scores: Scores, labels: Labels) -> Float[Array, " examples"]:
    # Not by indexing: its gradient is a scatter, which is slow.
    return jnp.sum(jnp.where(_is_label(scores, labels), scores, 0.0), axis=1)


def _others(scores: Scores, labels: Labels) -> Scores:
    return jnp.where(_is_label(scores, labels), -jnp.inf, scores)


def _is_label(scores: Scores, labels: Labels) -> Bool[Array, "examples classes"]:
    return labels[:, None] == jnp.arange(scores.shape[1])


LOSSES = {"cross_entropy": cross_entropy, "margin": margin, "dlr": dlr}
