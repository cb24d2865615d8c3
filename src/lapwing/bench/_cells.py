"""Recurrent cells for which nobody ships a kernel, each a loss that takes the scan to use, as in `_gru_models`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lapwing.bench._gru_models import Scan, sum_of_squares

HEADS = 4


def layer_norm_lstm_loss(scan: Scan, weights: Any, xs: jax.Array) -> Any:
    """Both products and the cell are normalized over the units, as in Ba, Kiros and Hinton (2016)."""

    def step(state, x):
        h, c = state
        of_x = _normalized(x @ weights["input"], weights["input gain"])
        of_h = _normalized(h @ weights["recurrent"], weights["recurrent gain"])
        i, f, g, o = jnp.split(of_x + of_h + weights["bias"], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(_normalized(c, weights["cell gain"]))
        return (h, c), h

    return sum_of_squares(scan(step, (_zeros(xs, weights),) * 2, xs)[1])


def _normalized(value: jax.Array, gain: jax.Array) -> jax.Array:
    """A layer norm as Flax computes it: the mean, and the mean of squares, in float32 at least."""
    wide = value.astype(jnp.promote_types(value.dtype, jnp.float32))
    mean = jnp.mean(wide, -1, keepdims=True)
    variance = jnp.mean(jnp.square(wide), -1, keepdims=True) - jnp.square(mean)
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-6)).astype(value.dtype) * gain


def peephole_lstm_loss(scan: Scan, weights: Any, xs: jax.Array) -> Any:
    """The gates also see the cell, as in Gers and Schmidhuber (2000)."""
    to_i, to_f, to_o = weights["peephole"]

    def step(state, x):
        h, c = state
        gates = x @ weights["input"] + h @ weights["recurrent"] + weights["bias"]
        i, f, g, o = jnp.split(gates, 4, -1)
        c = jax.nn.sigmoid(f + to_f * c) * c + jax.nn.sigmoid(i + to_i * c) * jnp.tanh(g)
        h = jax.nn.sigmoid(o + to_o * c) * jnp.tanh(c)
        return (h, c), h

    return sum_of_squares(scan(step, (_zeros(xs, weights),) * 2, xs)[1])


def slstm_loss(scan: Scan, weights: Any, xs: jax.Array) -> Any:
    """The sLSTM of xLSTM (Beck et al. 2024): 4 heads, exponential gates, a normalizer and a stabilizer.

    The recurrent weights are one matrix for each head and gate, and a head sees only itself.
    """
    heads, inner = weights["recurrent"].shape[1:3]

    def step(state, x):
        h, c, n, m = state
        gates = (x @ weights["input"] + weights["bias"]).reshape(-1, 4, heads, inner)
        gates = gates + jnp.einsum("bhd,ghde->bghe", h, weights["recurrent"])
        i, f, z, o = (gates[:, gate] for gate in range(4))
        kept = jax.nn.log_sigmoid(f) + m
        m = jnp.where(n == 0, i, jnp.maximum(kept, i))
        i, f = jnp.exp(i - m), jnp.exp(kept - m)
        c, n = f * c + i * jnp.tanh(z), f * n + i
        h = jax.nn.sigmoid(o) * c / n
        return (h, c, n, m), h

    zero = jnp.zeros((xs.shape[1], heads, inner), xs.dtype)
    return sum_of_squares(scan(step, (zero,) * 4, xs)[1])


def oscillator_loss(scan: Scan, weights: Any, xs: jax.Array) -> Any:
    """A cell of our own: each unit is a damped spring with a gate.

    The others push it and set its stiffness and its damping; they see its position through the gate. Nobody has a
    kernel for it.
    """
    time_step = 0.5

    def step(state, x):
        h, position, velocity = state
        gates = x @ weights["input"] + h @ weights["recurrent"] + weights["bias"]
        push, stiffness, damping, gate = jnp.split(gates, 4, -1)
        force = jnp.tanh(push) - jax.nn.softplus(stiffness) * position
        velocity = jax.nn.sigmoid(damping) * velocity + time_step * force
        position = position + time_step * velocity
        h = jax.nn.sigmoid(gate) * jnp.sin(position)
        return (h, position, velocity), h

    return sum_of_squares(scan(step, (_zeros(xs, weights),) * 3, xs)[1])


def _zeros(xs: jax.Array, weights: Any) -> jax.Array:
    return jnp.zeros((xs.shape[1], weights["recurrent"].shape[0]), xs.dtype)


def _arguments(more: Callable[[int], dict[str, tuple[int, ...]]]) -> Callable[..., tuple[Any, jax.Array]]:
    """Normal weights, all but gains and biases divided by the square root of the width; inputs of that width."""

    def arguments(batch: int, steps: int, width: int, dtype: Any = jnp.float32) -> tuple[Any, jax.Array]:
        shapes = {"input": (width, 4 * width), "recurrent": (width, 4 * width), "bias": (4 * width,)}
        shapes |= more(width)
        *keys, last = jax.random.split(jax.random.key(0), len(shapes) + 1)
        weights = {
            name: (jax.random.normal(key, shape) / (width**0.5 if len(shape) > 1 else 1)).astype(dtype)
            for key, (name, shape) in zip(keys, shapes.items(), strict=True)
        }
        return weights, jax.random.normal(last, (steps, batch, width)).astype(dtype)

    return arguments


CELLS = {
    "layer_norm_lstm": (
        layer_norm_lstm_loss,
        _arguments(
            lambda width: {
                "input gain": (4 * width,), "recurrent gain": (4 * width,), "cell gain": (width,)
            }
        ),
    ),
    "peephole_lstm": (peephole_lstm_loss, _arguments(lambda width: {"peephole": (3, width)})),
    "slstm": (
        slstm_loss,
        _arguments(lambda width: {"recurrent": (4, HEADS, width // HEADS, width // HEADS)}),
    ),
    "oscillator": (oscillator_loss, _arguments(lambda _: {})),
}  # fmt: skip
