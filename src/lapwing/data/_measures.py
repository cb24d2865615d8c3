"""How good answers are, with what one gets without looking at the questions beside it. PAD counts nowhere.

The headline is the exact match: an answer counts when all of it is right. A share of right tokens flatters, all the
more so if some of them are always the same.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._sequences import PAD


class Score(NamedTuple):
    """Shares of what was right, from 0 to 1."""

    exact_match: Float[Array, ""]
    token_accuracy: Float[Array, ""]


def score(answers: Int[Array, "examples output"], targets: Int[Array, "examples output"]) -> Score:
    """How many answers are right, whole and token by token.

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
    """The share of right tokens at each place of the answers; 0 where there is nothing but PAD."""
    counts = targets != PAD
    return jnp.sum((answers == targets) & counts, axis=0) / jnp.maximum(1, jnp.sum(counts, axis=0))


def trivial_answers(targets: Int[Array, "examples output"], vocabulary: int) -> Int[Array, "examples output"]:
    """The best answers of somebody who has not seen the questions: the most frequent token of each place."""
    counted = jax.nn.one_hot(targets, vocabulary, dtype=jnp.float32).at[..., PAD].set(0)
    return jnp.broadcast_to(jnp.argmax(jnp.sum(counted, axis=0), axis=-1), targets.shape)


def cross_entropy(
    logits: Float[Array, "examples output vocabulary"], targets: Int[Array, "examples output"]
) -> Float[Array, ""]:
    """The mean over all tokens that count, in float32 whatever the logits are."""
    likely = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    each = -jnp.take_along_axis(likely, targets[..., None], axis=-1)[..., 0]
    counts = targets != PAD
    return jnp.sum(jnp.where(counts, each, 0.0)) / jnp.maximum(1, jnp.sum(counts))


def _share(right: Bool[Array, "..."], counts: Bool[Array, "..."]) -> Float[Array, ""]:
    return jnp.sum(right & counts) / jnp.maximum(1, jnp.sum(counts))
