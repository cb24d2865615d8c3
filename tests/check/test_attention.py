"""Masks of attention that are inverted, and heads that are split without a transpose, with clean twins."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from lapwing import check
from lapwing.check import CheckError, CheckInputError
from lapwing.task import Task
from tests.slow import some

LENGTHS = np.array([3, 5, 4, 6, 2, 5])
RANDOM = np.random.default_rng(0)
TOKENS = RANDOM.integers(1, 9, (6, 7)) * (np.arange(7) < LENGTHS[:, None])
BATCH = {"tokens": TOKENS, "lengths": LENGTHS}
PARAMS = {"embed": RANDOM.normal(size=(9, 12)), "qkv": RANDOM.normal(size=(12, 36))}


def split(x: Any) -> Any:
    return x.reshape(*x.shape[:2], 3, 4).swapaxes(1, 2)


def attend(p: Any, h: Any, mask: Any, split: Any = split, merge: Any = lambda x: x.swapaxes(1, 2)) -> Any:
    """`mask` makes masked scores of scores (batch, heads, time, time)."""
    q, k, v = map(split, jnp.split(h @ p["qkv"], 3, -1))
    return merge(jax.nn.softmax(mask(q @ k.mT / 2.0)) @ v).reshape(h.shape)


def pads(batch: Any) -> Any:
    return (batch["tokens"] == 0)[:, None, None, :]


def examine(mask: Any, batch: Any = BATCH) -> check.Report:
    return check.attention(
        lambda p, b: attend(p, p["embed"][b["tokens"]], lambda s: mask(s, b)), PARAMS, batch
    )


TRIL = jnp.tril(jnp.ones((7, 7), bool))


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (lambda s, b: jnp.where(pads(b), s, -1e9), "the padding of batch"),
        (lambda s, b: s + jnp.finfo(s.dtype).min * ~pads(b), "the padding of batch"),
        (lambda s, b: jnp.where(~pads(b), -jnp.inf, s), "the padding of batch"),
        (
            lambda s, b: jnp.where((jnp.arange(7) >= b["lengths"][:, None])[:, None, None], s, -1e9),
            "the padding",
        ),
        (lambda s, b: jnp.where(pads(b) & TRIL, s, -1e9), "the padding of batch"),
        (lambda s, b: jnp.where(TRIL, -1e9, s), "the future and nothing else"),
        (lambda s, b: s + jnp.where(TRIL, -1e30, 0.0), "the future and nothing else"),
    ],
    ids=["kept", "added", "infinite", "by lengths", "causal too", "future", "future added"],
)
def test_an_inverted_mask_is_found(wrong: Any, what: str):
    with pytest.raises(
        CheckError, match=f"the mask of the attention at test_attention.py:.* lets through {what}"
    ):
        examine(wrong)


def test_padding_at_the_beginning_and_padded_vectors_are_known():
    left = {"tokens": TOKENS[:, ::-1], "lengths": LENGTHS}
    with pytest.raises(CheckError, match="the padding of batch"):
        examine(lambda s, b: jnp.where(pads(b), s, -1e9), left)
    vectors = {"x": RANDOM.normal(size=(6, 7, 12)) * (TOKENS > 0)[..., None], "is_padding": TOKENS == 0}

    def model(p: Any, b: Any) -> Any:
        return attend(p, b["x"], lambda s: jnp.where(b["is_padding"][:, None, None], s, -1e9))

    with pytest.raises(CheckError, match=r"the padding of batch\['x'\]"):
        check.attention(model, PARAMS, vectors)


@pytest.mark.parametrize(
    "right",
    [
        lambda s, b: jnp.where(pads(b), -1e9, s),
        lambda s, b: s - 1e9 * pads(b),
        lambda s, b: jnp.where(~pads(b) & TRIL, s, -1e9),
        lambda s, b: jnp.where(TRIL.T, s, -1e9),  # the other direction
        lambda s, b: jnp.where(jnp.eye(7, dtype=bool), -1e9, s),  # not itself
        lambda s, b: s,
    ],
    ids=["padding", "added", "causal", "backwards", "others", "none"],
)
def test_a_right_mask_is_not(right: Any):
    examine(right)


def test_labels_that_look_like_padding_are_none():
    batch = {"tokens": RANDOM.integers(1, 9, (6, 7)), "lengths": LENGTHS}
    examine(lambda s, b: jnp.where((jnp.arange(7) < b["lengths"][:, None])[:, None, None], s, -1e9), batch)


@pytest.mark.parametrize("inverted", some([True, False], 1))
def test_the_attention_of_a_library(inverted: bool):
    model = nn.MultiHeadDotProductAttention(num_heads=2)
    h = jnp.ones((6, 7, 4))

    def predict(params: Any, batch: Any) -> Any:
        mask = (batch["tokens"] == 0 if inverted else batch["tokens"] > 0)[:, None, None, :]
        return model.apply(params, h * batch["tokens"][..., None], mask=mask)

    task = Task(
        init=lambda key: model.init(key, h),
        data=lambda key, step: BATCH,
        loss=lambda params, batch: (jnp.mean(predict(params, batch)), {}),
        predict=predict,
    )
    (outcome,) = check.run_all(task, only=["attention"])
    assert outcome.result == ("failed" if inverted else "passed"), outcome.detail


def flat(x: Any) -> Any:
    return x.reshape(18, 7, 4)  # (batch · heads, time, width)


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"split": lambda x: x.reshape(6, 3, 7, 4), "merge": lambda x: x}, "splits"),
        ({"split": flat, "merge": lambda x: x}, "splits"),
        ({"merge": lambda x: x}, "merges"),
        (
            {"split": lambda x: jnp.reshape(2.0 * x + 1, (6, 3, 7, 4)), "merge": lambda x: x.swapaxes(1, 2)},
            "splits",
        ),
    ],
    ids=["split", "in the batch", "merged", "scaled"],
)
def test_heads_without_a_transpose_are_found(how: Any, what: str):
    with pytest.raises(CheckError, match=rf"the reshape at test_attention.py:\d+ {what} the heads"):
        check.attention(lambda p, b: attend(p, p["embed"][b["tokens"]], lambda s: s, **how), PARAMS, BATCH)


def test_heads_in_a_loop_over_layers_are_found():
    def model(p: Any, b: Any, split: Any, merge: Any) -> Any:
        step = lambda h, w: (attend({"qkv": w}, h, lambda s: s, split, merge), None)  # noqa: E731
        return jax.lax.scan(step, p["embed"][b["tokens"]], jnp.stack([p["qkv"]] * 2))[0]

    wrong = lambda p, b: model(p, b, lambda x: x.reshape(6, 3, 7, 4), lambda x: x)  # noqa: E731
    with pytest.raises(CheckError, match="splits the heads"):
        check.attention(wrong, PARAMS, BATCH)
    check.attention(lambda p, b: model(p, b, split, lambda x: x.swapaxes(1, 2)), PARAMS, BATCH)


def einsum(p: Any, b: Any) -> Any:
    h = p["embed"][b["tokens"]]
    q, k, v = (x.reshape(6, 7, 3, 4) for x in jnp.split(h @ p["qkv"], 3, -1))
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(6, 7, 12)


def mapped(p: Any, b: Any) -> Any:
    def one(h: Any) -> Any:
        q, k, v = (x.reshape(7, 3, 4) for x in jnp.split(h @ p["qkv"], 3, -1))
        head = lambda q, k, v: jax.nn.softmax(q @ k.T) @ v  # noqa: E731
        return jax.vmap(head, in_axes=1, out_axes=1)(q, k, v).reshape(7, 12)

    return jax.vmap(one)(p["embed"][b["tokens"]])


@pytest.mark.parametrize(
    "right",
    [
        einsum,
        mapped,
        lambda p, b: attend(
            p, p["embed"][b["tokens"]], lambda s: s, lambda x: flat(split(x)), lambda x: split_back(x)
        ),
    ],
    ids=["einsum", "mapped", "in the batch"],
)
def test_heads_with_a_transpose_are_not(right: Any):
    check.attention(right, PARAMS, BATCH)


def split_back(x: Any) -> Any:
    return x.reshape(6, 3, 7, 4).swapaxes(1, 2)


def test_a_model_without_attention_is_not_examined():
    with pytest.raises(CheckInputError, match="no softmax of products"):
        check.attention(lambda p, b: p["embed"][b["tokens"]].sum(), PARAMS, BATCH)
