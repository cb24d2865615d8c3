"""“Oups The model don't learn!”, and two weeks until the cause was known (docs/story.md)."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing.check import CheckError, CheckInputError, can_learn, trivial_loss

from .models import tokens, transformer, transformer_params


def cross_entropy(logits, targets):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1))


def flip_loss(params, words, **options):
    """The transformer reverses the sequence."""
    return cross_entropy(transformer(params, words, causal=False, **options), words[:, ::-1])


@pytest.fixture(scope="module")
def params():
    return transformer_params()


def test_a_model_that_can_learn_a_batch_passes(params):
    words = tokens(4, 6)
    report = can_learn(flip_loss, params, words, targets=words, classes=11)
    assert report.facts["reached"] < 0.5 * report.facts["start"]


@pytest.mark.slow
def test_a_model_with_swapped_axes_cannot_memorize_many_sequences(params):
    words = np.random.default_rng(0).integers(0, 11, (200, 6))
    with pytest.raises(
        CheckError,
        match=r"training on one batch does not reduce its loss enough: it was .* taken along the examples",
    ):
        can_learn(
            lambda p, w: flip_loss(p, w, swapped=True), params, words, targets=words, steps=40, fall=0.4
        )


def test_a_confident_and_wrong_initialization_is_found(params):
    loud = params | {"out": 30 * params["out"]}
    with pytest.raises(
        CheckError,
        match=r"a uniform guess among 11 classes has log\(11\) = 2.398: the model is confident and wrong",
    ):
        can_learn(flip_loss, loud, tokens(), classes=11)


def test_an_initialization_that_is_already_right_is_found():
    with pytest.raises(CheckError, match="the model is already right"):
        can_learn(lambda w, x: jnp.sum(w**2) + 0.1, jnp.zeros(2), np.ones(1), classes=10)


def test_a_loss_summed_over_the_batch_is_not_that_of_a_uniform_guess(params):
    with pytest.raises(CheckError, match="whether the loss is a mean over examples"):
        can_learn(lambda p, w: 24 * flip_loss(p, w), params, tokens(), classes=11)


@pytest.mark.slow
def test_a_loss_that_is_summed_with_a_mask_is_found():
    labels, mask = jnp.arange(12) % 3, jnp.arange(12) < 7

    def loss(w, batch):
        x, labels, mask = batch
        return jnp.sum(optax.softmax_cross_entropy_with_integer_labels(x @ w, labels) * mask)

    x = jax.random.normal(jax.random.key(0), (12, 4))
    with pytest.raises(
        CheckError, match=r"a sum over examples or tokens, of which a uniform guess has 7\.69"
    ):
        can_learn(loss, 0.3 * jnp.ones((4, 3)), (x, labels, mask), classes=3)


def blobs(classes: int = 4) -> tuple[jax.Array, jax.Array]:
    k1, k2 = jax.random.split(jax.random.key(0))
    labels = jnp.arange(32) % classes
    return 2 * jax.random.normal(k1, (classes, 8))[labels] + jax.random.normal(k2, (32, 8)), labels


def softmax_loss(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def test_inputs_that_are_not_normalized_are_reported():
    x, labels = blobs()
    w = jax.random.normal(jax.random.key(3), (8, 4)) / 8**0.5
    report = can_learn(lambda w, x: softmax_loss(x @ w, labels), w, x, targets=labels, classes=4)
    assert "the initial loss is 1.8 times that of a uniform guess, log(4)" in report.message


@pytest.mark.slow
def test_a_low_temperature_is_reported_and_weights_that_are_too_large_are_found():
    """Both begin at more than ten times a uniform guess; only the second does by its weights."""
    x, labels = blobs()
    w = jax.random.normal(jax.random.key(3), (8, 4))

    def unit(x):
        return x / (jnp.linalg.norm(x, axis=-1, keepdims=True) + 1e-6)

    report = can_learn(lambda w, x: softmax_loss(unit(x @ w) @ jnp.eye(4) * 50, labels), w, x, classes=4)
    assert report.facts["start"] > 10 * np.log(4)
    with pytest.raises(CheckError, match="confident and wrong, and is not with smaller weights"):
        can_learn(lambda w, x: softmax_loss(x @ w, labels), 8 * w, x, classes=4)


@pytest.mark.slow
def test_a_weighted_sum_with_soft_targets_is_judged_in_its_own_units():
    """Distillation: the floor of the loss is the entropy of the teacher, far above the loss of the frequencies."""
    x, labels = blobs()
    soft = jax.nn.softmax(x[:, :4] / 8)

    def loss(w, x):
        logits = x @ w
        return 0.2 * softmax_loss(logits, labels) + 4 * optax.softmax_cross_entropy(logits / 2, soft).mean()

    report = can_learn(loss, jnp.zeros((8, 4)), x, targets=labels, classes=4, fall=0.1, steps=40)
    assert "a uniform guess has 5.822 and not log(4), so the loss is no plain cross-entropy" in report.message
    with pytest.raises(CheckError, match="does not reduce its loss enough"):
        can_learn(lambda w, x: loss(0 * w, x), jnp.zeros((8, 4)), x, targets=labels, classes=4, steps=5)


def test_no_better_than_the_most_frequent_token_is_found():
    """A model without inputs learns how often each token occurs, and most are padding."""
    targets = np.array([0] * 15 + [3, 4, 5, 6, 7])
    with pytest.raises(
        CheckError, match=r"the most frequent target is 0, 75%; is it padding\?\) gives 0\.9646"
    ):
        can_learn(
            lambda p: cross_entropy(jnp.broadcast_to(p, (20, 8)), targets), jnp.zeros(8), targets=targets
        )


def test_an_initial_loss_that_is_nan_is_found():
    with pytest.raises(CheckError, match="the initial loss is nan"):
        can_learn(lambda w: jnp.sum(jnp.log(w)), -jnp.ones(2))


def test_what_is_not_trained_stays():
    params = {"a": jnp.zeros(2), "b": jnp.ones(())}
    with pytest.raises(
        CheckError, match="does not reduce its loss enough: it was 2 and is 2 at best after 5 steps"
    ):
        can_learn(lambda p: jnp.sum((p["a"] - 1) ** 2), params, trainable={"a": False, "b": True}, steps=5)


def test_the_trivial_loss_of_numbers_is_their_variance():
    assert trivial_loss(np.array([1.0, 3.0])) == (1.0, "always predicting the mean")


def test_one_class_is_refused():
    with pytest.raises(CheckInputError, match="expected two classes or more, found classes=1"):
        can_learn(lambda w: w**2, jnp.ones(()), classes=1)


def test_an_initial_loss_that_cannot_be_is_explained_by_the_program():
    x, labels = jax.random.normal(jax.random.key(0), (8, 4)), jnp.arange(8) % 3
    start = 9 * jax.random.normal(jax.random.key(1), (4, 3))
    swapped = lambda w, x: optax.softmax_cross_entropy(jax.nn.one_hot(labels, 3), x @ w).mean()  # noqa: E731
    with pytest.raises(
        CheckError, match=r"guess among 3 classes .* shows why: .* arguments of the loss are swapped"
    ):
        can_learn(swapped, start, x, classes=3)
