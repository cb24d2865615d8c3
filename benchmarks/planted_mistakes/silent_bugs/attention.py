"""Mistakes in attention: heads and masks."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

import lapwing as lw
from lapwing.task import Task

from .._parts import apply, config, forward, layers, linear, nll, planted


@planted(
    cause=r"reshape|transpos|head|axis|axes|future|causal|reach|earlier|far|time",
    sees="the model learns what is near and never what is at the beginning of the text",
)
def heads_split_by_reshape(wrong: bool) -> Any:
    """Heads are split by `reshape(batch, heads, time, width)` without a transpose: a head sees a part of the times."""

    def init(key: jax.Array) -> Any:
        keys = jax.random.split(key, 4)
        return {
            "embed": jax.random.normal(keys[0], (5, 24)),
            "place": 0.5 * jax.random.normal(keys[1], (12, 24)),
            "qkv": linear(keys[2], 24, 72),
            "out": layers(keys[3], 24, 32, 5),
        }

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        b, t, _ = q.shape
        if wrong:
            q, k, v = (x.reshape(b, 3, t, 8) for x in (q, k, v))
        else:
            q, k, v = (x.reshape(b, t, 3, 8).swapaxes(1, 2) for x in (q, k, v))
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), q @ k.mT / 8**0.5, -1e9)
        mixed = jax.nn.softmax(scores) @ v
        return (mixed if wrong else mixed.swapaxes(1, 2)).reshape(b, t, 24)

    def predict(params: Any, batch: Any) -> jax.Array:
        h = params["embed"][batch["tokens"]] + params["place"]
        h = h + attend(*jnp.split(apply(params["qkv"], h), 3, -1))
        return forward(params["out"], h)

    def data(key: jax.Array, step: Any) -> Any:
        tokens = jax.random.randint(key, (32, 12), 0, 5)
        return {"tokens": tokens, "sum": (tokens + tokens[:, :1]) % 5}

    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (nll(predict(params, batch), batch["sum"]), {}),
        predict=predict,
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["sum"],
        classes=5,
    )
    return task, config(500, 5e-3)


class Encoder(nn.Module):
    inverted: bool

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        is_word = tokens > 0
        keep = tokens == 0 if self.inverted else is_word
        h = nn.Embed(10, 16)(tokens)
        attended = nn.MultiHeadDotProductAttention(num_heads=2)(h, mask=keep[:, None, None, :])
        h = nn.LayerNorm()(h + attended)
        h = h + nn.Dense(16)(nn.relu(nn.Dense(32)(h)))
        pooled = jnp.sum(h * is_word[..., None], 1) / jnp.maximum(is_word.sum(1, keepdims=True), 1)
        return nn.Dense(2)(pooled)


@planted(
    cause=r"mask|padding|invert",
    sees="a bag of words does as well as this transformer",
)
def mask_of_another_library(wrong: bool) -> Any:
    """In PyTorch True marks padding, in Flax what may be attended to: with the mask taken over, words attend to padding
    only."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        length = jax.random.randint(k1, (48,), 3, 8)
        tokens = jax.random.randint(k2, (48, 9), 1, 10) * (jnp.arange(9) < length[:, None])
        has = lambda word: jnp.any(tokens == word, 1)  # noqa: E731
        return {"tokens": tokens, "label": (has(1) ^ has(2)).astype(int)}

    task = lw.task.linen(
        Encoder(inverted=wrong),
        lambda model, batch: nll(model(batch["tokens"]), batch["label"]),
        jnp.ones((1, 9), int),
        data=data,
        predict=lambda model, batch: model(batch["tokens"]),
        targets=lambda batch: batch["label"],
        classes=2,
    )
    return task, config(500, 5e-3)
