"""Padding counts nowhere, and a whole answer counts only when all of it is right."""

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.data import PAD, cross_entropy, score, score_by_place, trivial_answers

TARGETS = jnp.array([[5, 6, 1, PAD], [7, 1, PAD, PAD], [5, 8, 9, 1], [PAD] * 4])


def test_padding_counts_nowhere():
    right = jnp.where(TARGETS == PAD, 3, TARGETS)
    assert [float(share) for share in score(right, TARGETS)] == [1.0, 1.0]
    assert np.asarray(score_by_place(right, TARGETS)).tolist() == [1, 1, 1, 1]
    logits = 20.0 * jax.nn.one_hot(right, 10)
    assert cross_entropy(logits, TARGETS) < 1e-6
    spoilt = jnp.where(
        (TARGETS == PAD)[..., None], jax.random.normal(jax.random.key(0), logits.shape), logits
    )
    assert cross_entropy(spoilt, TARGETS) == cross_entropy(logits, TARGETS)
    slope = jax.grad(cross_entropy)(jnp.zeros((4, 4, 10)), TARGETS)
    assert not np.asarray(slope)[np.asarray(TARGETS) == PAD].any()


def test_one_wrong_token_spoils_an_answer():
    answers = TARGETS.at[2, 1].set(4)
    exact, by_token = score(answers, TARGETS)
    np.testing.assert_allclose([exact, by_token], [2 / 3, 8 / 9], rtol=1e-6)
    np.testing.assert_allclose(score_by_place(answers, TARGETS), [1, 2 / 3, 1, 1], rtol=1e-6)


def test_nothing_but_padding_is_no_success():
    nothing = jnp.zeros((3, 4), int)
    assert [float(share) for share in score(nothing, nothing)] == [0.0, 0.0]


def test_a_place_that_no_example_has_is_not_a_number():
    nothing = jnp.zeros((3, 2), int)
    assert np.isnan(score_by_place(nothing, nothing)).all()


def test_the_trivial_answer_is_the_most_frequent_token_of_each_place():
    targets = jnp.array([[5, 1, PAD], [5, 6, 1], [7, 6, 1], [5, 6, 1]])
    assert trivial_answers(targets, 8).tolist() == [[5, 6, 1]] * 4
    exact, by_token = score(trivial_answers(targets, 8), targets)
    np.testing.assert_allclose([exact, by_token], [2 / 4, 9 / 11], rtol=1e-6)


def test_the_entropy_of_ignorance():
    np.testing.assert_allclose(cross_entropy(jnp.zeros((4, 4, 10)), TARGETS), np.log(10), rtol=1e-6)
    half = cross_entropy(jnp.zeros((4, 4, 10), jnp.bfloat16), TARGETS)
    assert half.dtype == jnp.float32
