"""Sequences that are read as a whole, and words that are rare."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax import nnx
from optax import softmax_cross_entropy_with_integer_labels as each_nll

import lapwing as lw
from lapwing.bench.doctor import clean
from lapwing.task import Task

from .._parts import apply, config, forward, gru, layers, linear, nll, run_gru


@clean
def tagger_that_reads_both_ways() -> Any:
    """A bidirectional encoder: the tag of a word depends on the words after it, which are there when it is given."""

    def init(key: jax.Array) -> Any:
        k1, k2, k3, k4 = jax.random.split(key, 4)
        embed = jax.random.normal(k1, (7, 8))
        return {"embed": embed, "on": gru(k2, 8, 16), "back": gru(k3, 8, 16), "out": linear(k4, 32, 7)}

    def predict(params: Any, batch: Any) -> jax.Array:
        h = params["embed"][batch["words"]]
        back = run_gru(params["back"], h[:, ::-1])[:, ::-1]
        return apply(params["out"], jnp.concatenate([run_gru(params["on"], h), back], 2))

    def data(key: jax.Array, step: Any) -> Any:
        words = jax.random.randint(key, (32, 12), 0, 7)
        after = jnp.pad(words, ((0, 0), (0, 1)))[:, 1:]
        return {"words": words, "tags": (words + after) % 7}

    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (nll(predict(params, batch), batch["tags"]), {}),
        predict=predict,
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["tags"],
        classes=7,
        expected_findings={"causality": "a tag may depend on all words of its sentence"},
    )
    return task, config(400)


class Filler(nn.Module):
    @nn.compact
    def __call__(self, words: jax.Array) -> jax.Array:
        table = nn.Embed(10, 24)
        h = table(words) + self.param("place", nn.initializers.normal(0.3), (9, 24))
        for _ in range(2):
            h = h + nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(h))
            h = h + nn.Dense(24)(nn.gelu(nn.Dense(48)(nn.LayerNorm()(h))))
        return table.attend(nn.LayerNorm()(h))[..., :9]


@clean
def words_that_are_hidden() -> Any:
    """A masked language model: a seventh of the words counts, the rest has no effect on the loss, and the embedding is
    the output layer too."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        start, pace = jax.random.randint(k1, (32, 1), 0, 9), jax.random.randint(k2, (32, 1), 1, 3)
        words = (start + pace * jnp.arange(9)) % 9
        hidden = jax.random.bernoulli(k3, 0.15, words.shape).at[:, 0].set(False)
        return {"seen": jnp.where(hidden, 9, words), "words": words, "hidden": hidden}

    def loss(model: Any, batch: Any) -> Any:
        each = each_nll(model(batch["seen"]), batch["words"]) * batch["hidden"]
        return jnp.sum(each) / jnp.maximum(jnp.sum(batch["hidden"]), 1)

    task = lw.task.linen(
        Filler(),
        loss,
        jnp.zeros((1, 9), int),
        data=data,
        predict=lambda model, batch: model(batch["seen"]),
        targets=lambda batch: batch["words"],
        classes=9,
    )
    return task, config(400, 3e-3)


@clean
def lessons_that_grow() -> Any:
    """A curriculum: sums of two digits first, and one more each time the loss is small. The data depend on the
    training, and late inputs have no effect for a while."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"gru": gru(k1, 5, 32), "out": linear(k2, 32, 4)}

    def data(key: jax.Array, step: Any, memory: Any) -> Any:
        digits = jax.random.randint(key, (48, 6), 0, 4) * (jnp.arange(6) < memory["length"])
        return {"digits": digits, "read": jnp.arange(6) < memory["length"], "sum": digits.sum(1) % 4}

    def predict(params: Any, batch: Any) -> jax.Array:
        read = jnp.broadcast_to(batch["read"], batch["digits"].shape)[..., None]
        x = jnp.concatenate([jax.nn.one_hot(batch["digits"], 4) * read, read], -1)
        return apply(params["out"], run_gru(params["gru"], x)[:, -1])

    def remember(memory: Any, batch: Any, metrics: Any) -> Any:
        smooth = 0.9 * memory["loss"] + 0.1 * metrics["nll"]
        grows = smooth < 0.3
        length = jnp.minimum(memory["length"] + grows, 6)
        return {"length": length, "loss": jnp.where(grows, 1.5, smooth)}

    def loss(params: Any, batch: Any) -> Any:
        value = nll(predict(params, batch), batch["sum"])
        return value, {"nll": value}

    task = Task(
        init=init,
        data=data,
        loss=loss,
        memory=lambda key: {"length": jnp.full((), 2), "loss": jnp.full((), 1.5)},
        remember=remember,
        predict=predict,
        batch_axis={"digits": 0, "read": None, "sum": 0},
        targets=lambda batch: batch["sum"],
        classes=4,
    )
    return task, config(500, 1e-2)


class Clicks(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.users, self.items = (nnx.Embed(count, 8, rngs=rngs) for count in (600, 400))
        self.bias = nnx.Param(jnp.zeros(400))

    def __call__(self, user: jax.Array, item: jax.Array) -> jax.Array:
        return jnp.sum(self.users(user) * self.items(item), -1) + self.bias[item]


@clean
def users_who_are_rarely_seen() -> Any:
    """A recommender with a row for each of 600 users and 400 items: a batch of 64 touches a tenth of them."""
    taste = jax.random.normal(jax.random.key(1), (600, 3))
    style = jax.random.normal(jax.random.key(2), (400, 3))

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        user, item = jax.random.randint(k1, (64,), 0, 600), jax.random.randint(k2, (64,), 0, 400)
        likes = 2 * jnp.sum(taste[user] * style[item], 1)
        return {
            "user": user,
            "item": item,
            "click": jax.random.bernoulli(k3, jax.nn.sigmoid(likes)).astype(float),
        }

    def predict(model: Any, batch: Any) -> jax.Array:
        return model(batch["user"], batch["item"])

    task = lw.task.nnx(
        Clicks,
        lambda model, batch: optax.sigmoid_binary_cross_entropy(predict(model, batch), batch["click"]).mean(),
        data=data,
        predict=predict,
        targets=lambda batch: batch["click"],
        optimizer=lambda learning_rate: optax.adagrad(learning_rate, 1e-8),
    )
    return task, config(2000, 0.2)


@clean
def one_head_for_each_language() -> Any:
    """Four languages, one at a time: three of the four heads have no effect on the loss of a batch."""
    codes = jnp.stack([jax.random.permutation(jax.random.key(k), 5) for k in range(4)])

    def init(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        heads = jax.vmap(lambda k: linear(k, 24, 5))(jax.random.split(k3, 4))
        return {"embed": jax.random.normal(k1, (6, 12)), "trunk": layers(k2, 12, 24, 24), "heads": heads}

    def predict(params: Any, batch: Any) -> jax.Array:
        h = jax.nn.relu(forward(params["trunk"], params["embed"][batch["word"]]))
        return apply(jax.tree.map(lambda leaf: leaf[batch["language"]], params["heads"]), h)

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        word, language = jax.random.randint(k1, (32,), 0, 5), jax.random.randint(k2, (), 0, 4)
        return {"word": word, "language": language, "means": codes[language][word]}

    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (nll(predict(params, batch), batch["means"]), {}),
        predict=predict,
        batch_axis={"word": 0, "language": None, "means": 0},
        targets=lambda batch: batch["means"],
        classes=5,
    )
    return task, config(300)
