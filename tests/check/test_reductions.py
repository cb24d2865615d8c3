"""A part of the loss that is summed where another is averaged, in three disguises, and clean twins. Only traced."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

from lapwing.check import CheckError, numbers

KEY = jax.random.key(0)
PARAMS = {"w": jax.random.normal(KEY, (4, 3)), "table": jax.random.normal(KEY, (9, 9))}
BATCH = {"x": jax.random.normal(KEY, (8, 4)), "y": jnp.arange(8) % 3, "mask": jnp.arange(8) < 5}
TOKENS = jax.random.randint(KEY, (6, 10), 0, 9)
BY_LABEL = optax.softmax_cross_entropy_with_integer_labels


def logits(p: Any, b: Any) -> jax.Array:
    return b["x"] @ p["w"]


def fit(p: Any, b: Any) -> jax.Array:
    return BY_LABEL(logits(p, b), b["y"])


def size(p: Any, b: Any) -> jax.Array:
    return logits(p, b) ** 2


OVER_EXAMPLES = [
    lambda p, b: jnp.mean(fit(p, b) + 0.1 * jnp.sum(size(p, b))),
    lambda p, b: fit(p, b).mean() + 1e-3 * jnp.einsum("bc,bc->", logits(p, b), logits(p, b)),
    lambda p, b: jnp.sum(fit(p, b) * b["mask"]) / jnp.sum(b["mask"]) + jnp.sum(size(p, b).mean(-1)),
    lambda p, b: (
        optax.l2_loss(logits(p, b)).sum() / len(b["x"]) + 0.01 * jnp.sum(jax.vmap(jnp.max)(size(p, b)))
    ),
]
OVER_EXAMPLES_RIGHT = [
    lambda p, b: jnp.mean(fit(p, b) + 0.1 * jnp.sum(size(p, b), -1)),
    lambda p, b: fit(p, b).sum() + 1e-3 * jnp.einsum("bc,bc->", logits(p, b), logits(p, b)),
    lambda p, b: jnp.sum(fit(p, b) * b["mask"]) / jnp.maximum(b["mask"].sum(), 1) + jnp.mean(size(p, b)),
    lambda p, b: optax.l2_loss(logits(p, b)).sum() / 8 + 0.01 * jnp.mean(size(p, b)),  # 8: the batch size
    lambda p, b: fit(p, b).sum() + 1e-3 * jnp.sum(p["w"] ** 2),  # the sum and a penalty of the weights
    lambda p, b: fit(p, b).mean() + jnp.sum(jnp.log(jnp.sum(jnp.exp(logits(p, b)), 0))),
    lambda p, b: jnp.mean((logits(p, b) - logits(p, b).mean(0)) ** 2) + jnp.sum(logits(p, b).var(0, ddof=1)),
    lambda p, b: fit(p, b).mean() + jnp.sum(jnp.sort(size(p, b), 0)[-1]),
]


def scores(p: Any, tokens: jax.Array) -> jax.Array:
    return p["table"][tokens]


def words(p: Any, tokens: jax.Array) -> jax.Array:
    return BY_LABEL(scores(p, tokens)[:, :-1], tokens[:, 1:])


def squares(p: Any, tokens: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(scores(p, tokens), -1) ** 2


def latent(p: Any, tokens: jax.Array) -> jax.Array:
    return scores(p, tokens).mean(1) @ p["table"]


OVER_TIME = [
    lambda p, t: words(p, t).mean() + 1e-4 * jnp.sum(squares(p, t)) / len(t),
    lambda p, t: words(p, t).mean() + 1e-4 * squares(p, t).sum(1).mean(),
    lambda p, t: words(p, t).sum() / len(t) + 1e-4 * squares(p, t).mean(),
]
OVER_TIME_RIGHT = [
    lambda p, t: words(p, t).mean() + 1e-4 * squares(p, t).mean(),
    lambda p, t: words(p, t).sum(1).mean() + 1e-4 * squares(p, t).sum(1).mean(),
    # The divergence of a latent of the whole text has no time axis, and that of its words is a sum.
    lambda p, t: words(p, t).sum(1).mean() + 0.5 * jnp.mean(jnp.sum(latent(p, t) ** 2, -1)),
]


@pytest.mark.parametrize("disguise", range(len(OVER_EXAMPLES)))
def test_a_sum_over_the_examples_beside_a_mean_is_found_with_its_line(disguise: int):
    with pytest.raises(CheckError, match=r"added at test_reductions.py:\d+, .* sum over the 8 examples"):
        numbers(OVER_EXAMPLES[disguise], PARAMS, BATCH)


@pytest.mark.parametrize("twin", range(len(OVER_EXAMPLES_RIGHT)))
def test_parts_that_are_all_means_or_all_sums_pass(twin: int):
    numbers(OVER_EXAMPLES_RIGHT[twin], PARAMS, BATCH)


@pytest.mark.parametrize("disguise", range(len(OVER_TIME)))
def test_a_sum_over_the_time_beside_a_mean_is_found(disguise: int):
    with pytest.raises(CheckError, match=r"added at test_reductions.py:\d+, .* sum over the 10 time steps"):
        numbers(OVER_TIME[disguise], PARAMS, TOKENS, time_axis=1)


@pytest.mark.parametrize("twin", range(len(OVER_TIME_RIGHT)))
def test_parts_that_are_all_means_or_all_sums_over_the_time_pass(twin: int):
    numbers(OVER_TIME_RIGHT[twin], PARAMS, TOKENS, time_axis=1)


MARKED = TOKENS.at[:, :2].set(-100)
BEYOND = TOKENS.at[0, 3].set(9)


@pytest.mark.parametrize(
    ("loss", "tokens", "row"),
    [
        (lambda p, t: jnp.mean(p["table"][t] ** 2), MARKED, -100),
        (lambda p, t: jnp.mean(jnp.tanh(p["table"].at[t].get(mode="clip"))), BEYOND, 9),
        (lambda p, t: jnp.mean(jnp.take(p["table"], t, axis=0, mode="clip") ** 2), MARKED, -100),
    ],
)
def test_a_row_that_a_table_does_not_have_is_found(loss: Any, tokens: jax.Array, row: int):
    with pytest.raises(
        CheckError, match=rf"test_reductions.py:\d+ the batch looks up row {row} of params\['table'\]"
    ):
        numbers(loss, PARAMS, tokens)


@pytest.mark.parametrize(
    ("loss", "tokens"),
    [
        (lambda p, t: jnp.mean(p["table"][t] ** 2), TOKENS),
        (lambda p, t: jnp.mean(p["table"][t] ** 2), TOKENS.at[0, 0].set(-1)),  # the last row, as in numpy
        (
            lambda p, t: jnp.sum(jnp.where((t >= 0)[..., None], p["table"][t], 0.0)),
            MARKED,
        ),  # masked afterwards
        (lambda p, t: jnp.mean(p["table"][jnp.maximum(t, 0)] ** 2), MARKED),
    ],
)
def test_rows_that_a_table_has_or_that_do_not_matter_pass(loss: Any, tokens: jax.Array):
    numbers(loss, PARAMS, tokens)
