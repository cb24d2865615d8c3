"""Seed 002: "Oups The model don't learn!" and two weeks until it was known why."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.check import CheckError, CheckInputError, can_learn, trivial_loss

from .models import tokens, transformer, transformer_params


def cross_entropy(logits, targets):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1))


def flip_loss(params, words, **options):
    """The transformer says the sequence backwards."""
    return cross_entropy(transformer(params, words, causal=False, **options), words[:, ::-1])


@pytest.fixture(scope="module")
def params():
    return transformer_params(jax.random.key(0))


def test_a_model_that_can_learn_a_batch_passes(params):
    words = tokens(4, 6)
    report = can_learn(flip_loss, params, words, targets=words, classes=11)
    assert report.facts["reached"] < 0.5 * report.facts["start"]


def test_a_model_with_swapped_axes_cannot_learn_many_sequences_by_heart(params):
    words = np.random.default_rng(0).integers(0, 11, (200, 6))
    with pytest.raises(
        CheckError, match=r"one batch cannot be learned by heart: its loss was .*batch_independence"
    ):
        can_learn(
            lambda p, w: flip_loss(p, w, swapped=True), params, words, targets=words, steps=60, fall=0.4
        )


def test_a_start_that_is_sure_of_itself_is_found(params):
    loud = params | {"out": 30 * params["out"]}
    with pytest.raises(
        CheckError, match=r"a uniform guess among 11 classes has log\(11\) = 2.398: that is a guess that is"
    ):
        can_learn(flip_loss, loud, tokens(), classes=11)


def test_a_start_that_knows_the_answer_is_found():
    with pytest.raises(CheckError, match="an answer that is already known"):
        can_learn(lambda w, x: jnp.sum(w**2) + 0.1, jnp.zeros(2), np.ones(1), classes=10)


def test_a_loss_summed_over_the_batch_is_not_that_of_a_uniform_guess(params):
    with pytest.raises(CheckError, match="whether the loss is a mean over examples"):
        can_learn(lambda p, w: 24 * flip_loss(p, w), params, tokens(), classes=11)


def test_no_better_than_the_most_frequent_token_is_found():
    """A model that sees no input learns how often each token occurs, and most of them are padding."""
    targets = np.array([0] * 15 + [3, 4, 5, 6, 7])
    with pytest.raises(
        CheckError, match=r"the most frequent target is 0, 75%; is it padding\?\) gives 0\.9646"
    ):
        can_learn(
            lambda p: cross_entropy(jnp.broadcast_to(p, (20, 8)), targets), jnp.zeros(8), targets=targets
        )


def test_a_loss_that_is_no_number_at_the_start_is_found():
    with pytest.raises(CheckError, match="the loss at the start is nan"):
        can_learn(lambda w: jnp.sum(jnp.log(w)), -jnp.ones(2))


def test_what_is_not_trained_stays():
    with pytest.raises(CheckError, match="cannot be learned by heart"):
        can_learn(lambda p: jnp.sum((p["a"] - 1) ** 2), {"a": jnp.zeros(2)}, trainable={"a": False}, steps=40)


def test_the_trivial_loss_of_numbers_is_their_variance():
    assert trivial_loss(np.array([1.0, 3.0])) == (1.0, "always saying the mean")


def test_one_class_is_refused():
    with pytest.raises(CheckInputError, match="expected two classes or more, found classes=1"):
        can_learn(lambda w: w**2, jnp.ones(()), classes=1)
