"""Losses of the wrong thing: labels, masks, means, shapes."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from lapwing.bench.doctor import bug
from lapwing.task import Task

from ._parts import (
    CLASSES,
    TIME,
    VOCABULARY,
    clusters,
    cross_entropy,
    language_model,
    line,
    logits_of,
    mlp,
    next_tokens,
    run_mlp,
    text,
)


def _text_task(loss: Any, data: Any = next_tokens, **fields: Any) -> Task:
    given: dict[str, Any] = {
        "init": language_model,
        "data": data,
        "loss": loss,
        "predict": lambda params, batch: logits_of(params, batch["inputs"]),
        "time_axis": 1,
        "output_time_axis": 1,
        "targets": lambda batch: batch["targets"],
        "classes": VOCABULARY,
    }
    return Task(**(given | fields))


@bug("https://github.com/Lightning-Universe/lightning-bolts/issues/654", cause=r"softmax")
def lightning_bolts_654(wrong: bool) -> Task:
    """Softmax is applied twice: the model returns probabilities, and the loss takes them for logits."""

    def predict(params: Any, batch: Any) -> jax.Array:
        scores = run_mlp(params, batch["x"])
        return jax.nn.softmax(scores) if wrong else scores

    return Task(
        init=lambda key: mlp(key, 6, 16, CLASSES),
        data=lambda key, step: clusters(key),
        loss=lambda params, batch: (cross_entropy(predict(params, batch), batch["y"]), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
        classes=CLASSES,
    )


@bug("https://github.com/huggingface/transformers/issues/47394", cause=r"shift")
def transformers_47394(wrong: bool) -> Task:
    """The labels are shifted by the data, and again by the loss: the model learns to predict the token after the next
    one."""

    def loss(params: Any, batch: Any) -> Any:
        logits, labels = logits_of(params, batch["inputs"]), batch["targets"]
        return cross_entropy(logits[:, :-1], labels[:, 1:]) if wrong else cross_entropy(logits, labels), {}

    return _text_task(loss)


@bug(
    "https://github.com/LAMDA-Tabular/TALENT/pull/92",
    cause=r"broadcast",
    held_out=True,
)
def talent_92(wrong: bool) -> Task:
    """Predictions of shape (n, 1) minus targets of shape (n): the loss is over all n² pairs."""

    def predict(params: Any, batch: Any) -> jax.Array:
        outputs = run_mlp(params, batch["x"])
        return outputs if wrong else outputs[:, 0]

    return Task(
        init=lambda key: mlp(key, 5, 16, 1),
        data=lambda key, step: line(key),
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
    )


def _padded(key: jax.Array, step: Any) -> dict[str, jax.Array]:
    """Texts of different lengths; 0 is padding."""
    k1, k2 = jax.random.split(key)
    tokens = text(k1, time=TIME + 1)
    length = jax.random.randint(k2, (16, 1), 4, TIME + 2)
    tokens = jnp.where(jnp.arange(TIME + 1) < length, tokens, 0)
    return {"inputs": tokens[:, :-1], "targets": tokens[:, 1:]}


@bug("https://github.com/huggingface/transformers/issues/2759", cause=r"padding|ignore|-100|mask")
def transformers_2759(wrong: bool) -> Task:
    """The data mark what should not count with -100, the loss looks for -1: padding is trained on."""

    def data(key: jax.Array, step: Any) -> Any:
        batch = _padded(key, step)
        return batch | {"targets": jnp.where(batch["targets"] == 0, -100, batch["targets"])}

    def loss(params: Any, batch: Any) -> Any:
        counts = batch["targets"] != (-1 if wrong else -100)
        each = optax.softmax_cross_entropy_with_integer_labels(
            logits_of(params, batch["inputs"]), jnp.maximum(batch["targets"], 0)
        )
        return jnp.sum(jnp.where(counts, each, 0.0)) / jnp.sum(counts), {}

    return _text_task(loss, data)


@bug(
    "https://github.com/voidism/DiffCSE/issues/25",
    cause=r"mask.* no effect|padding|mask",
)
def diffcse_25(wrong: bool) -> Task:
    """Replaced-token detection: padding counts as a negative example, since only the accuracy reads the mask."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        tokens = _padded(k1, step)["inputs"]
        mask = tokens != 0
        replaced = jax.random.bernoulli(k2, 0.3, tokens.shape) & mask
        others = jax.random.randint(k3, tokens.shape, 1, VOCABULARY)
        return {"inputs": jnp.where(replaced, others, tokens), "targets": replaced.astype(int), "mask": mask}

    def predict(params: Any, batch: Any) -> jax.Array:
        everywhere = jnp.ones((TIME, TIME), bool)
        return logits_of(params, batch["inputs"], everywhere)[..., :2]

    def loss(params: Any, batch: Any) -> Any:
        logits = predict(params, batch)
        right = (logits.argmax(-1) == batch["targets"]) * batch["mask"]
        each = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
        value = jnp.mean(each) if wrong else jnp.sum(each * batch["mask"]) / jnp.sum(batch["mask"])
        return value, {"accuracy": jnp.sum(right) / jnp.sum(batch["mask"])}

    def init(key: jax.Array) -> Any:
        params = language_model(key)
        return params | {"out": jax.tree.map(lambda leaf: leaf[..., :2], params["out"])}

    return _text_task(
        loss, data, init=init, predict=predict, classes=2, time_axis=None, output_time_axis=None
    )


@bug(
    "https://github.com/EDAPINENUT/GNTPP/issues/4",
    cause=r"batch size|size of the batch|number of examples|sum|averag|scales? with",
    seen_later=True,
)
def gntpp_4(wrong: bool) -> Task:
    """The divergence of a variational autoencoder is summed over the whole batch instead of the latent axis: no
    exception, the number is broadcast to all examples."""

    def loss(params: Any, batch: Any, key: jax.Array) -> Any:
        mean, log_scale = jnp.split(run_mlp(params["encode"], batch["x"]), 2, axis=-1)
        latent = mean + jnp.exp(log_scale) * jax.random.normal(key, mean.shape)
        error = jnp.sum((run_mlp(params["decode"], latent) - batch["x"]) ** 2, axis=-1)
        terms = jnp.exp(2 * log_scale) + mean**2 - 1 - 2 * log_scale
        divergence = 0.5 * jnp.sum(terms, axis=None if wrong else -1)
        return jnp.mean(error + 0.1 * divergence), {}

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"encode": mlp(k1, 6, 16, 8), "decode": mlp(k2, 4, 16, 6)}

    return Task(init=init, data=lambda key, step: {"x": clusters(key)["x"]}, loss=loss)


@bug(
    "https://github.com/allenai/OLMo/pull/634",
    cause=r"tokens|averag|mean over|instances",
)
def olmo_634(wrong: bool) -> Task:
    """The z-loss is a sum over tokens divided by the number of texts, while the cross-entropy is a mean over
    tokens."""

    def loss(params: Any, batch: Any) -> Any:
        logits = logits_of(params, batch["inputs"])
        squares = jax.nn.logsumexp(logits, axis=-1) ** 2
        z = jnp.sum(squares) / len(squares) if wrong else jnp.mean(squares)
        return cross_entropy(logits, batch["targets"]) + 1e-4 * z, {"z": z}

    return _text_task(loss)
