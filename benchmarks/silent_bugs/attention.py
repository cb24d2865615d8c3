"""Outputs that depend on the future, on other examples or on padding."""

from typing import Any

import jax
import jax.numpy as jnp

from lapwing.bench.doctor import bug
from lapwing.task import Task

from ._parts import (
    CLASSES,
    TIME,
    VOCABULARY,
    WIDTH,
    apply,
    attend,
    cross_entropy,
    dense,
    language_model,
    logits_of,
    next_tokens,
    text,
)

_FUTURE = r"changes with the inputs from time|later input|future|causal"


def _language_task(predict: Any, init: Any = language_model) -> Task:
    return Task(
        init=init,
        data=next_tokens,
        loss=lambda params, batch: (cross_entropy(predict(params, batch), batch["targets"]), {}),
        predict=predict,
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["targets"],
        classes=VOCABULARY,
    )


@bug("https://github.com/huggingface/transformers/issues/48745", cause=_FUTURE)
def transformers_48745(wrong: bool) -> Task:
    """Decoders build a bidirectional mask: every position sees the tokens after it."""
    mask = jnp.ones((TIME, TIME), bool) if wrong else jnp.tril(jnp.ones((TIME, TIME), bool))
    return _language_task(lambda params, batch: logits_of(params, batch["inputs"], mask))


@bug("https://github.com/keras-team/keras/issues/23038", cause=_FUTURE, held_out=True)
def keras_23038(wrong: bool) -> Task:
    """A fast path drops the causal mask, since its kernel masks by itself; with dropout the slow path runs, without a
    mask. Dropout is on in training only, so that an evaluation looks right."""

    def logits(params: Any, tokens: jax.Array, key: Any) -> jax.Array:
        x = params["embed"][tokens] + params["place"]
        causal = jnp.tril(jnp.ones((TIME, TIME), bool))
        allowed = jnp.ones_like(causal) if wrong and key is not None else causal
        h = attend(params, x, allowed)
        if key is not None:
            h = jnp.where(jax.random.bernoulli(key, 0.9, h.shape), h / 0.9, 0.0)
        x = x + h
        x = x + apply(params["back"], jax.nn.gelu(apply(params["hidden"], x)))
        return apply(params["out"], x)

    return Task(
        init=language_model,
        data=next_tokens,
        loss=lambda params, batch, key: (
            cross_entropy(logits(params, batch["inputs"], key), batch["targets"]),
            {},
        ),
        predict=lambda params, batch: logits(params, batch["inputs"], None),
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["targets"],
        classes=VOCABULARY,
    )


@bug("https://github.com/karpathy/nanochat/issues/844", cause=_FUTURE)
def nanochat_844(wrong: bool) -> Task:
    """A summary of a block of positions is given to all of them: the first of the block read the last."""

    def predict(params: Any, batch: Any) -> jax.Array:
        x = params["embed"][batch["inputs"]]
        blocks = x.reshape(x.shape[0], TIME // 4, 4, WIDTH)
        counts = jnp.arange(1, 5)[:, None]
        sums = jnp.cumsum(blocks, axis=2) / counts
        summary = jnp.broadcast_to(blocks.mean(2, keepdims=True), blocks.shape) if wrong else sums
        return logits_of(params, batch["inputs"]) + summary.reshape(x.shape) @ params["summary"]

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return language_model(k1) | {"summary": 0.1 * jax.random.normal(k2, (WIDTH, VOCABULARY))}

    return _language_task(predict, init)


def _bags(key: jax.Array, step: Any) -> dict[str, jax.Array]:
    """Texts, padded with 0, whose class is that of their first token."""
    k1, k2 = jax.random.split(key)
    tokens = text(k1, 32)
    length = jax.random.randint(k2, (32, 1), 3, TIME)
    mask = jnp.arange(TIME) < length
    return {"tokens": jnp.where(mask, tokens, 0), "mask": mask, "y": tokens[:, 0] % CLASSES}


def _pooled_task(weights: Any) -> Task:
    """A classifier that pools its tokens with attention; `weights` are made from the scores and the mask."""

    def init(key: jax.Array) -> Any:
        k1, k2, k3, k4 = jax.random.split(key, 4)
        return {
            "embed": jax.random.normal(k1, (VOCABULARY, WIDTH)),
            "place": jax.random.normal(k2, (TIME, WIDTH)),
            "score": dense(k3, WIDTH, 1),
            "out": dense(k4, WIDTH, CLASSES),
        }

    def predict(params: Any, batch: Any) -> jax.Array:
        x = jnp.tanh(params["embed"][batch["tokens"]] + params["place"])
        shares = weights(apply(params["score"], x)[..., 0], batch["mask"])
        return apply(params["out"], jnp.einsum("bt,btd->bd", shares, x))

    return Task(
        init=init,
        data=_bags,
        loss=lambda params, batch: (cross_entropy(predict(params, batch), batch["y"]), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
        classes=CLASSES,
    )


@bug(
    "https://github.com/PetrochukM/PyTorch-NLP/issues/2",
    cause=r"change with example|of other examples|examples depend|axis 0",
    held_out=True,
)
def pytorch_nlp_2(wrong: bool) -> Task:
    """The softmax of the attention runs over the batch axis."""
    axis = 0 if wrong else -1
    return _pooled_task(lambda scores, mask: jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=axis))


@bug("https://github.com/InseeFrLab/torchTextClassifiers/pull/92", cause=r"mask|padding")
def torchtextclassifiers_92(wrong: bool) -> Task:
    """The mask is inverted: only padding is attended to."""
    return _pooled_task(lambda scores, mask: jax.nn.softmax(jnp.where(mask != wrong, scores, -1e9), axis=-1))


@bug("https://github.com/AI-Hypercomputer/maxtext/issues/4476", cause=r"segment")
def maxtext_4476(wrong: bool) -> Task:
    """Several texts are packed into a row; a kernel ignores the segment numbers, so that a text attends to those before
    it."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        first, second = text(k1), text(k2)
        cut = jax.random.randint(k3, (16, 1), 2, TIME - 2)
        place = jnp.arange(TIME)
        tokens = jnp.where(place < cut, first, second)
        following = jnp.where(place + 1 < cut, jnp.roll(first, -1, 1), jnp.roll(second, -1, 1))
        return {
            "inputs": tokens,
            "targets": following,
            "segments": 1 + (place >= cut).astype(jnp.int32),
            "counts": (place < TIME - 1) & (place + 1 != cut),
        }

    def predict(params: Any, batch: Any) -> jax.Array:
        causal = jnp.tril(jnp.ones((TIME, TIME), bool))
        same = batch["segments"][:, :, None] == batch["segments"][:, None, :]
        return logits_of(params, batch["inputs"], causal if wrong else causal & same)

    def loss(params: Any, batch: Any) -> Any:
        scores = jax.nn.log_softmax(predict(params, batch))
        picked = jnp.take_along_axis(scores, batch["targets"][..., None], axis=-1)[..., 0]
        return -jnp.sum(picked * batch["counts"]) / jnp.sum(batch["counts"]), {}

    return Task(
        init=language_model,
        data=data,
        loss=loss,
        predict=predict,
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["targets"],
        classes=VOCABULARY,
    )
