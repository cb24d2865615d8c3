"""What the programs share: the mark of a planted mistake, small layers, small data."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lapwing.bench.doctor import bug
from lapwing.train import FitConfig


def planted(*, cause: str, sees: str) -> Callable[[Any], Any]:
    """Marks a function of `wrong` as a planted mistake: what names its cause, and what a person sees in the run."""
    return bug(f"Planted. What one sees: {sees}", cause=cause)


def config(steps: int = 300, learning_rate: float = 5e-3, **more: Any) -> FitConfig:
    return FitConfig(steps=steps, learning_rate=learning_rate, laps_every=0, **more)


def linear(key: jax.Array, inputs: int, outputs: int) -> dict[str, jax.Array]:
    return {"w": jax.random.normal(key, (inputs, outputs)) / inputs**0.5, "b": jnp.zeros(outputs)}


def apply(layer: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return x @ layer["w"] + layer["b"]


def layers(key: jax.Array, *sizes: int) -> list[dict[str, jax.Array]]:
    keys = jax.random.split(key, len(sizes))
    return [linear(k, a, b) for k, a, b in zip(keys, sizes, sizes[1:], strict=False)]


def forward(params: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    *hidden, last = params
    for layer in hidden:
        x = jax.nn.relu(apply(layer, x))
    return apply(last, x)


def blobs(key: jax.Array, count: int = 32, width: int = 5, classes: int = 3, spread: float = 1.0) -> Any:
    """Points around one center for each class, and their classes."""
    k1, k2 = jax.random.split(key)
    label = jax.random.randint(k1, (count,), 0, classes)
    centers = jax.random.normal(jax.random.key(11), (classes, width)) * 1.5
    return {"x": centers[label] + spread * jax.random.normal(k2, (count, width)), "label": label}


def nll(logits: jax.Array, label: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()


def gru(key: jax.Array, inputs: int, width: int) -> dict[str, Any]:
    k1, k2 = jax.random.split(key)
    return {"gates": linear(k1, inputs + width, 2 * width), "new": linear(k2, inputs + width, width)}


def gru_step(params: dict[str, Any], h: jax.Array, x: jax.Array) -> jax.Array:
    r, z = jnp.split(jax.nn.sigmoid(apply(params["gates"], jnp.concatenate([x, h], -1))), 2, -1)
    new = jnp.tanh(apply(params["new"], jnp.concatenate([x, r * h], -1)))
    return (1 - z) * h + z * new


def run_gru(params: dict[str, Any], xs: jax.Array) -> jax.Array:
    """The states of a GRU, (batch, time, width), over inputs (batch, time, features)."""
    width = params["new"]["b"].shape[0]

    def step(h: jax.Array, x: jax.Array) -> Any:
        h = gru_step(params, h, x)
        return h, h

    _, hs = jax.lax.scan(step, jnp.zeros((xs.shape[0], width)), jnp.swapaxes(xs, 0, 1))
    return jnp.swapaxes(hs, 0, 1)
