"""Mistakes in masks: padding that counts, and a mask that is the other way round."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import linen as nn
from optax import softmax_cross_entropy_with_integer_labels as each_nll

import lapwing as lw

from .._parts import config, planted


class Tagger(eqx.Module):
    embed: eqx.nn.Embedding
    hidden: eqx.nn.Conv1d
    out: eqx.nn.Linear

    def __init__(self, key: jax.Array):
        k1, k2, k3 = jax.random.split(key, 3)
        self.embed = eqx.nn.Embedding(8, 12, key=k1)
        self.hidden = eqx.nn.Conv1d(12, 24, 3, padding=1, key=k2)
        self.out = eqx.nn.Linear(24, 4, key=k3)

    def __call__(self, words: jax.Array) -> jax.Array:
        h = jax.nn.relu(self.hidden(jax.vmap(self.embed)(words).T))
        return jax.vmap(self.out)(h.T)


@planted(
    cause=r"pad|mask|length",
    sees="the loss is small from the beginning, and the rarest tags of real words are never given",
)
def tags_of_padding_count(wrong: bool) -> Any:
    """Sentences are padded to 24 words, and the mean of the loss is over all of them: most of what it sees is the tag
    of padding, whose number is that of a common word too."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        length = jax.random.randint(k1, (32,), 2, 7)
        words = jax.random.categorical(k2, jnp.log(jnp.array([8.0, 1, 1, 1, 1, 1, 1, 1])), shape=(32, 24))
        before = jnp.pad(words, ((0, 0), (1, 0)))[:, :-1]
        noise = jax.random.bernoulli(k3, 0.3, words.shape)
        is_word = jnp.arange(24) < length[:, None]
        tags = jnp.where(noise, 1, (words + before) % 3 + 1)
        return {"words": words * is_word, "tags": tags * is_word, "length": length}

    def loss(model: Any, batch: Any) -> Any:
        each = each_nll(jax.vmap(model)(batch["words"]), batch["tags"])
        if wrong:
            return jnp.mean(each)
        is_word = jnp.arange(24) < batch["length"][:, None]
        return jnp.sum(each * is_word) / jnp.sum(is_word)

    task = lw.task.equinox(
        Tagger,
        loss,
        data=data,
        predict=lambda model, batch: jax.vmap(model)(batch["words"]),
        targets=lambda batch: batch["tags"],
        classes=4,
    )
    return task, config(300)


class Denoiser(nn.Module):
    @nn.compact
    def __call__(self, words: jax.Array) -> jax.Array:
        place = self.param("place", nn.initializers.normal(0.5), (10, 24))
        h = nn.Embed(9, 24)(words) + place
        for _ in range(2):
            h = h + nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(h))
            h = h + nn.Dense(24)(nn.gelu(nn.Dense(48)(nn.LayerNorm()(h))))
        return nn.Dense(8)(h)


@planted(
    cause=r"mask|invert|hidden|copy|copies|already (in|among)|leak|shown|visible|own input",
    sees="the loss is near zero within an epoch, and what is fine-tuned from it is no better than from random weights",
)
def loss_of_the_words_that_are_shown(wrong: bool) -> Any:
    """A masked language model: its loss is over the words that it is shown, not over those that are hidden from it."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        start, pace = jax.random.randint(k1, (32, 1), 0, 8), jax.random.randint(k2, (32, 1), 1, 4)
        words = (start + pace * jnp.arange(10)) % 8
        hidden = jax.random.bernoulli(k3, 0.2, words.shape).at[:, 4].set(True)
        return {"seen": jnp.where(hidden, 8, words), "words": words, "hidden": hidden}

    def loss(model: Any, batch: Any) -> Any:
        counted = ~batch["hidden"] if wrong else batch["hidden"]
        return jnp.mean(each_nll(model(batch["seen"]), batch["words"]), where=counted)

    task = lw.task.linen(
        Denoiser(),
        loss,
        jnp.zeros((1, 10), int),
        data=data,
        predict=lambda model, batch: model(batch["seen"]),
        targets=lambda batch: batch["words"],
        classes=8,
    )
    return task, config(400, 3e-3)
