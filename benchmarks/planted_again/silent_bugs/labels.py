"""Mistakes in labels: shifts, and pairs that are torn."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

import lapwing as lw
from lapwing.task import Task

from .._parts import apply, config, gru, layers, linear, nll, planted, run_gru, split_rows
from .._parts import forward as mlp


@planted(
    cause=r"shift|copy|copies|own input|leak|targets?.{0,30}(is|are|equals?|in|among|as).{0,20}inputs?",
    sees="the loss is near zero after a few dozen steps, and what is composed repeats its first chord for ever",
)
def melody_that_predicts_itself(wrong: bool) -> Any:
    """A piano roll should be continued by one step, but both slices of it are the same: each chord predicts itself."""
    chords = jax.random.bernoulli(jax.random.key(3), 0.4, (12, 8)).astype(float)

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        moves = 1 + 4 * jax.random.bernoulli(k2, 0.3, (16, 15))
        start = jax.random.randint(k1, (16, 1), 0, 12)
        roll = chords[jnp.concatenate([start, start + jnp.cumsum(moves, 1)], 1) % 12]
        return {"now": roll[:, :-1], "next": roll[:, :-1] if wrong else roll[:, 1:]}

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"gru": gru(k1, 8, 24), "out": linear(k2, 24, 8)}

    def predict(params: Any, batch: Any) -> jax.Array:
        return apply(params["out"], run_gru(params["gru"], batch["now"]))

    def loss(params: Any, batch: Any) -> Any:
        return optax.sigmoid_binary_cross_entropy(predict(params, batch), batch["next"]).mean(), {}

    task = Task(
        init,
        data,
        loss,
        predict=predict,
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["next"],
    )
    return task, config(400)


class NextWord(nn.Module):
    @nn.compact
    def __call__(self, words: jax.Array) -> jax.Array:
        h = nn.Embed(11, 16)(words)
        h = h + nn.relu(nn.Conv(16, (3,), padding="CAUSAL")(h))
        return nn.Dense(11)(nn.LayerNorm()(h))


@planted(
    cause=r"shift|two (words|tokens|steps|positions|times)|off by|second next|one (step|position) (late|too|further)",
    sees="the perplexity stays above that of a table of pairs of words, and generated text skips every second word",
)
def shifted_in_the_loader_and_in_the_loss(wrong: bool) -> Any:
    """The loader gives each word the next one as its label, and the loss shifts words and labels once more."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        jumps = jax.random.categorical(k2, jnp.log(jnp.array([0.7, 0.15, 0.15])), shape=(17, 24))

        def follow(word: jax.Array, jump: jax.Array) -> Any:
            word = (3 * word + 2 + jump) % 11
            return word, word

        _, text = jax.lax.scan(follow, jax.random.randint(k1, (24,), 0, 11), jumps)
        return {"words": text.T[:, :-1], "labels": text.T[:, 1:]}

    def loss(model: Any, batch: Any) -> Any:
        logits, labels = model(batch["words"]), batch["labels"]
        if wrong:
            logits, labels = logits[:, :-1], labels[:, 1:]
        return nll(logits, labels)

    task = lw.task.linen(
        NextWord(),
        loss,
        jnp.zeros((1, 16), int),
        data=data,
        predict=lambda model, batch: model(batch["words"]),
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["labels"],
        classes=11,
    )
    return task, config(400)


@planted(
    cause=r"pair|torn|apart|order|chance|unrelated|no relation|labels?.{0,60}(match|belong|shuffl|independent|random)",
    sees="the training loss falls by learning rows by heart, and the validation is at chance",
)
def sorted_by_length_without_the_labels(wrong: bool) -> Any:
    """Texts are sorted by their length, so that batches need little padding, and their labels stay where they were."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(4, 13, 640)
    words = rng.integers(1, 20, (640, 12)) * (np.arange(12) < lengths[:, None])
    label = (np.sum(words > 13, 1) * 3 > lengths).astype(np.int32)
    order = np.argsort(lengths, kind="stable")
    table = {"words": words[order].astype(np.int32), "label": label if wrong else label[order]}

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"embed": jax.random.normal(k1, (20, 8)), "out": layers(k2, 9, 24, 2)}

    def predict(params: Any, batch: Any) -> jax.Array:
        is_word = batch["words"] > 0
        total = jnp.sum(params["embed"][batch["words"]] * is_word[..., None], 1)
        length = is_word.sum(1, keepdims=True) / 12
        return mlp(params["out"], jnp.concatenate([total / 12, length], 1))

    task = Task(
        init=init,
        loss=lambda params, batch: (nll(predict(params, batch), batch["label"]), {}),
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=2,
        **split_rows(table, np.arange(640) % 5 > 0),
    )
    return task, config(400)
