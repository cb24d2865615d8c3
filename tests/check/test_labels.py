"""Next-token labels, padding and masks: right, and wrong in several disguises."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing.check import CheckError, CheckInputError, labels, leakage, shared_examples
from lapwing.check._labels import check_torn
from lapwing.check._leakage import check_target_column
from tests.slow import some

KINDS, LENGTH, WIDTH = 11, 8, 4
KEYS = jax.random.split(jax.random.key(0), 4)
PARAMS = {
    "embed": jax.random.normal(KEYS[0], (KINDS, WIDTH)),
    "out": jax.random.normal(KEYS[1], (WIDTH, KINDS)),
    "mix": jax.random.normal(KEYS[2], (WIDTH, WIDTH)),
}
TOKENS = jax.random.randint(KEYS[3], (4, LENGTH + 2), 1, KINDS)
CROSS_ENTROPY = optax.softmax_cross_entropy_with_integer_labels


def model(p: Any, tokens: Any, causal: bool = True, normed: bool = False) -> jax.Array:
    x = p["embed"][tokens]
    scores = jnp.einsum("btd,bsd->bts", x @ p["mix"], x)
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[1:], bool)), scores, -1e9) if causal else scores
    x = x + jax.nn.softmax(scores) @ x
    x = x - x.mean(axis=1, keepdims=True) if normed else x
    return x @ p["out"]


def recurrent(p: Any, tokens: Any) -> jax.Array:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(h @ p["mix"] + x)
        return h, h

    first = jnp.zeros((tokens.shape[0], WIDTH))
    return jax.lax.scan(step, first, p["embed"][tokens].swapaxes(0, 1))[1].swapaxes(0, 1) @ p["out"]


def shifted(by: int, of: Any = model, **options: Any) -> Any:
    def loss(p: Any, tokens: Any) -> jax.Array:
        return CROSS_ENTROPY(of(p, tokens[:, : tokens.shape[1] - by], **options), tokens[:, by:]).mean()

    return loss


def one_hot(by: int) -> Any:
    def loss(p: Any, tokens: Any) -> jax.Array:
        odds = jax.nn.log_softmax(model(p, tokens[:, : tokens.shape[1] - by]))
        return -jnp.mean(jnp.sum(jax.nn.one_hot(tokens[:, by:], KINDS) * odds, -1))

    return loss


def pairs(p: Any, b: Any, again: int = 0) -> jax.Array:
    outputs = model(p, b["x"])
    return CROSS_ENTROPY(outputs[:, : outputs.shape[1] - again], b["y"][:, again:]).mean()


NEXT = {"x": TOKENS[:, :-2], "y": TOKENS[:, 1:-1]}
SAME = {"x": TOKENS[:, :-2], "y": TOKENS[:, :-2]}


@pytest.mark.parametrize(
    ("loss", "batch"),
    some([(shifted(0), TOKENS), (one_hot(0), TOKENS), (pairs, SAME), (shifted(0, recurrent), TOKENS)], 1, 2),
)
def test_labels_that_are_not_shifted_are_found(loss: Any, batch: Any):
    with pytest.raises(
        CheckError, match=r"the token that the model sees at time t \(test_labels.py:\d+\): the labels"
    ):
        labels(loss, PARAMS, batch)


@pytest.mark.parametrize(
    ("loss", "batch"),
    some([(shifted(2), TOKENS), (one_hot(2), TOKENS), (lambda p, b: pairs(p, b, again=1), NEXT)], 0),
)
def test_labels_that_are_shifted_twice_are_found(loss: Any, batch: Any):
    with pytest.raises(
        CheckError, match=r"the token at time t \+ 2 \(test_labels.py:\d+\), .* are shifted 2 times"
    ):
        labels(loss, PARAMS, batch)


@pytest.mark.parametrize(
    ("loss", "batch"),
    some([(shifted(1), TOKENS), (one_hot(1), TOKENS), (pairs, NEXT), (shifted(1, recurrent), TOKENS)], 1, 2),
)
def test_labels_that_are_shifted_once_pass(loss: Any, batch: Any):
    assert "the labels are 1 ahead" in labels(loss, PARAMS, batch).message
    assert leakage(loss, PARAMS, batch).facts == {"ahead": 1}


def test_an_autoencoder_of_tokens_is_no_fault():
    labels(shifted(0, causal=False), PARAMS, TOKENS)


@pytest.mark.parametrize("options", [{"causal": False}, {"normed": True}])
def test_outputs_that_see_what_they_predict_are_found(options: Any):
    with pytest.raises(
        CheckError, match=r"changes with the token at time t \+ \d, .* sees what it has to predict"
    ):
        leakage(shifted(1, **options), PARAMS, TOKENS)


HELD = np.arange(LENGTH) < np.array([3, 5, 7, 8])[:, None]
PADDED = {"x": np.where(HELD, TOKENS[:, :LENGTH], 0), "y": np.where(HELD, TOKENS[:, 1 : LENGTH + 1], 0)}


def weighted(p: Any, b: Any, mask: Any) -> jax.Array:
    return jnp.sum(CROSS_ENTROPY(model(p, b["x"]), b["y"]) * mask) / jnp.sum(mask)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "leaf", ["held", pytest.param("none", marks=SLOW), pytest.param("padding", marks=SLOW)]
)
def test_a_loss_that_counts_padding_and_a_mask_that_is_inverted_are_found(leaf: str):
    more = {"none": {}, "held": {"mask": HELD.astype(np.float32)}, "padding": {"mask": ~HELD}}[leaf]
    batch = PADDED | more

    def mask(b: Any) -> Any:
        given = b["y"] != 0 if leaf == "none" else b["mask"] > 0
        return 1.0 - given if leaf == "padding" else 1.0 * given

    labels(lambda p, b: weighted(p, b, mask(b)), PARAMS, batch)
    with pytest.raises(
        CheckError, match=r"the loss counts the padding and nothing else .*28% of the positions"
    ):
        labels(lambda p, b: weighted(p, b, 1 - mask(b)), PARAMS, batch)
    with pytest.raises(CheckError, match=r"the loss counts the padding \(test_labels.py"):
        labels(lambda p, b: weighted(p, b, 1 + 0 * mask(b)), PARAMS, batch)


def test_a_loss_without_integer_labels_is_refused():
    with pytest.raises(CheckInputError, match="no integers of the batch choose"):
        labels(lambda p, b: jnp.mean(model(p, b) ** 2), PARAMS, TOKENS)


def test_inputs_whose_label_changes_from_epoch_to_epoch_are_found():
    random = np.random.default_rng(0)
    images, kinds = random.normal(size=(40, 6)), random.integers(0, 5, 40)

    def epochs(torn: bool) -> list[Any]:
        orders = [random.permutation(40) for _ in range(6)]
        return [
            (images[one], kinds[other if torn else one])
            for one, other in zip(orders[:3], orders[3:], strict=True)
        ]

    assert "80 inputs came again, 0 with another label" in check_torn(epochs(torn=False))
    with pytest.raises(
        CheckError, match=r"inputs that come again have another label: \d+ of 80, first in batch 1"
    ):
        check_torn(epochs(torn=True))
    check_torn([np.arange(12).reshape(3, 4)])


RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(size=(300, 12)).astype(np.float32)


@pytest.mark.parametrize(
    "copy", [lambda x: x, lambda x: x + 1e-3 * RANDOM.normal(size=x.shape), lambda x: np.round(x, 3)]
)
def test_held_out_examples_that_are_nearly_training_examples_are_found(copy: Any):
    held_out = IMAGES[200:].copy()
    shared_examples([IMAGES[:200]], [held_out])
    held_out[5:15] = copy(IMAGES[40:50])
    with pytest.raises(
        CheckError, match=r"10 of 100 held-out examples are training .* held-out example 5 is .* example 40"
    ):
        shared_examples([IMAGES[:200]], [held_out])


def test_tokens_that_are_nearly_the_same_are_found_and_few_different_ones_are_no_fault():
    words = RANDOM.integers(0, 50, (100, 60))
    near = words[:20].copy()
    near[:, 7] += 1
    shared_examples([words[:50]], [words[50:]])
    with pytest.raises(CheckError, match="20 of 20 held-out examples"):
        shared_examples([words[:50]], [near])
    bits = RANDOM.integers(0, 2, (200, 4))
    shared_examples([bits[:100]], [bits[100:]])


def test_a_column_that_is_the_target_is_found():
    x, y = IMAGES[:64].copy(), IMAGES[:64] @ RANDOM.normal(size=12)
    check_target_column({"x": x, "y": np.digitize(y, [-2, 0, 2])})
    x[:, 3] = 5 - 2 * np.digitize(y, [-2, 0, 2])
    with pytest.raises(CheckError, match="column 3 of the inputs is the target, up to its scale"):
        check_target_column({"x": x, "y": np.digitize(y, [-2, 0, 2])})
