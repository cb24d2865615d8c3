"""Metrics of answers, beside those of a model that ignores its inputs. PAD is never counted.

The headline is the exact match: an answer counts when all of it is right. Token accuracy flatters, the more so if some
tokens are always the same.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._sequences import PAD


class Score(NamedTuple):
    """Fractions of right answers and of right tokens.

    >>> found = score(jnp.array([[5, 6], [7, 9]]), jnp.array([[5, 6], [7, 8]]))
    >>> float(found.exact_match), float(found.token_accuracy)
    (0.5, 0.75)
    """

    exact_match: Float[Array, ""]
    token_accuracy: Float[Array, ""]


def score(answers: Int[Array, "examples output"], targets: Int[Array, "examples output"]) -> Score:
    """Exact match and token accuracy.

    >>> targets = jnp.array([[5, 6, PAD], [7, 8, 9], [PAD, PAD, PAD]])
    >>> exact, by_token = score(jnp.array([[5, 6, 3], [7, 8, 5], [4, 4, 4]]), targets)
    >>> float(exact), round(float(by_token), 3)
    (0.5, 0.8)
    """
    counts = targets != PAD
    right = (answers == targets) & counts
    whole = jnp.all(right == counts, axis=1)
    return Score(_share(whole, jnp.any(counts, axis=1)), _share(right, counts))


def score_by_place(
    answers: Int[Array, "examples output"], targets: Int[Array, "examples output"]
) -> Float[Array, " output"]:
    """Token accuracy at each position of the answers; NaN at a position that no example has.

    >>> targets = jnp.array([[5, 6, PAD], [7, 8, PAD]])
    >>> score_by_place(jnp.array([[5, 6, 3], [7, 9, 3]]), targets).tolist()
    [1.0, 0.5, nan]
    """
    counts = targets != PAD
    return jnp.sum((answers == targets) & counts, axis=0) / jnp.sum(counts, axis=0)


def trivial_answers(targets: Int[Array, "examples output"], vocabulary: int) -> Int[Array, "examples output"]:
    """The best answers of a model that ignores its inputs: the most frequent token at each position.

    >>> trivial_answers(jnp.array([[2, 3], [2, 4], [5, 4]]), 6)[0].tolist()
    [2, 4]
    """
    counted = jax.nn.one_hot(targets, vocabulary, dtype=jnp.float32).at[..., PAD].set(0)
    return jnp.broadcast_to(jnp.argmax(jnp.sum(counted, axis=0), axis=-1), targets.shape)


def cross_entropy(
    logits: Float[Array, "examples output vocabulary"], targets: Int[Array, "examples output"]
) -> Float[Array, ""]:
    """The mean over all tokens but PAD, in float32.

    >>> f"{cross_entropy(jnp.zeros((1, 2, 4)), jnp.array([[3, PAD]])):.3f}"
    '1.386'
    """
    log_probabilities = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    each = -jnp.take_along_axis(log_probabilities, targets[..., None], axis=-1)[..., 0]
    counts = targets != PAD
    return jnp.sum(jnp.where(counts, each, 0.0)) / jnp.maximum(1, jnp.sum(counts))


def _share(right: Bool[Array, "..."], counts: Bool[Array, "..."]) -> Float[Array, ""]:
    return jnp.sum(right & counts) / jnp.maximum(1, jnp.sum(counts))
