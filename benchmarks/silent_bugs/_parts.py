"""Small models and data that the programs share: what is usual in them is here, what is wrong is in the programs."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

CLASSES = 4
VOCABULARY, TIME, WIDTH = 12, 8, 16


def only(params: dict[str, Any], *names: str) -> dict[str, Any]:
    """A mask of the parameters: True for the leaves of these parts."""
    return {name: jax.tree.map(lambda _, is_in=name in names: is_in, part) for name, part in params.items()}


def dense(key: jax.Array, inputs: int, outputs: int) -> dict[str, jax.Array]:
    return {"w": jax.random.normal(key, (inputs, outputs)) / inputs**0.5, "b": jnp.zeros(outputs)}


def apply(layer: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return x @ layer["w"] + layer["b"]


def mlp(key: jax.Array, *sizes: int) -> list[dict[str, jax.Array]]:
    keys = jax.random.split(key, len(sizes) - 1)
    return [dense(k, a, b) for k, a, b in zip(keys, sizes, sizes[1:], strict=False)]


def run_mlp(layers: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    for layer in layers[:-1]:
        x = jnp.tanh(apply(layer, x))
    return apply(layers[-1], x)


def clusters(key: jax.Array, count: int = 32, width: int = 6) -> dict[str, jax.Array]:
    """Points around one center per class."""
    k1, k2 = jax.random.split(key)
    y = jax.random.randint(k1, (count,), 0, CLASSES)
    centers = 2 * jax.random.normal(jax.random.key(7), (CLASSES, width))
    return {"x": centers[y] + jax.random.normal(k2, (count, width)), "y": y}


def line(key: jax.Array, count: int = 32, width: int = 5) -> dict[str, jax.Array]:
    """Inputs and a smooth function of them."""
    x = jax.random.normal(key, (count, width))
    return {"x": x, "y": jnp.sin(x[:, 0]) + x[:, 1] * x[:, 2]}


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))


def text(key: jax.Array, count: int = 16, time: int = TIME) -> jax.Array:
    """Tokens 1 … VOCABULARY - 1, each determined by the two before it."""
    k1, k2 = jax.random.split(key)
    start = jax.random.randint(k1, (count, 1), 0, VOCABULARY - 1)
    stride = jax.random.randint(k2, (count, 1), 1, 4)
    return 1 + (start + stride * jnp.arange(time)) % (VOCABULARY - 1)


def next_tokens(key: jax.Array, step: Any) -> dict[str, jax.Array]:
    tokens = text(key, time=TIME + 1)
    return {"inputs": tokens[:, :-1], "targets": tokens[:, 1:]}


def language_model(key: jax.Array, time: int = TIME) -> dict[str, Any]:
    keys = jax.random.split(key, 6)
    return {
        "embed": 0.5 * jax.random.normal(keys[0], (VOCABULARY, WIDTH)),
        "place": 0.5 * jax.random.normal(keys[1], (time, WIDTH)),
        "qkv": dense(keys[2], WIDTH, 3 * WIDTH),
        "hidden": dense(keys[3], WIDTH, 2 * WIDTH),
        "back": dense(keys[4], 2 * WIDTH, WIDTH),
        "out": dense(keys[5], WIDTH, VOCABULARY),
    }


def attend(params: dict[str, Any], x: jax.Array, allowed: jax.Array) -> jax.Array:
    q, k, v = jnp.split(apply(params["qkv"], x), 3, axis=-1)
    scores = jnp.einsum("bqd,bkd->bqk", q, k) / q.shape[-1] ** 0.5
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(jnp.where(allowed, scores, -1e9)), v)


def logits_of(params: dict[str, Any], tokens: jax.Array, allowed: jax.Array | None = None) -> jax.Array:
    """The logits at every position; by default each attends to itself and to what is before it."""
    time = tokens.shape[1]
    allowed = jnp.tril(jnp.ones((time, time), bool)) if allowed is None else allowed
    x = params["embed"][tokens] + params["place"][:time]
    x = x + attend(params, x, allowed)
    x = x + apply(params["back"], jax.nn.gelu(apply(params["hidden"], x)))
    return apply(params["out"], x)
