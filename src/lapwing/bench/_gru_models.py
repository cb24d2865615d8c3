"""The recurrent networks of the benchmark, each a loss that takes the scan to use, and the peers."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Scan = Callable[..., Any]


def gru_loss(
    scan: Scan, weights: Any, xs: jax.Array, extra_outputs: bool = False, siblings: bool = True
) -> Any:
    """A GRU with given inputs of the gates, as in the Theano experiment of 2014 (docs/story.md).

    `extra_outputs` returns all gates; without `siblings` the products of the two gates read the state under two names,
    so that they cannot be merged.
    """
    u, v, w = weights["reset"], weights["update"], weights["candidate"]

    def step(h, x):
        xr, xz, xn = jnp.split(x, 3, -1)
        same = h if siblings else h * 1.0
        r, z = jax.nn.sigmoid(xr + h @ u), jax.nn.sigmoid(xz + same @ v)
        n = jnp.tanh(xn + (r * h) @ w)
        h = (1 - z) * h + z * n
        return h, (h, r, z, n) if extra_outputs else h

    _, hs = scan(step, jnp.zeros((*xs.shape[1:-1], u.shape[0]), xs.dtype), xs)
    return sum_of_squares(hs[0] if extra_outputs else hs)


def gru_arguments(batch: int, steps: int, width: int, dtype: Any = jnp.float32) -> tuple[Any, jax.Array]:
    *keys, last = jax.random.split(jax.random.key(0), 4)
    weights = {
        name: (jax.random.normal(key, (width, width)) / width**0.5).astype(dtype)
        for name, key in zip(("reset", "update", "candidate"), keys, strict=True)
    }
    return weights, jax.random.normal(last, (steps, batch, 3 * width)).astype(dtype)


def lstm_loss(scan: Scan, weights: Any, xs: jax.Array) -> Any:
    """An LSTM with its input projection inside the loop."""
    of_x, of_h, bias = weights["input"], weights["recurrent"], weights["bias"]
    width = of_h.shape[0]

    def step(state, x):
        h, c = state
        i, f, g, o = jnp.split(x @ of_x + h @ of_h + bias, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((xs.shape[1], width), xs.dtype)
    return sum_of_squares(scan(step, (zero, zero), xs)[1])


def lstm_arguments(batch: int, steps: int, width: int, dtype: Any = jnp.float32) -> tuple[Any, jax.Array]:
    a, b, c, d = jax.random.split(jax.random.key(0), 4)
    weights = {
        "input": (jax.random.normal(a, (width, 4 * width)) / width**0.5).astype(dtype),
        "recurrent": (jax.random.normal(b, (width, 4 * width)) / width**0.5).astype(dtype),
        "bias": jax.random.normal(c, (4 * width,)).astype(dtype),
    }
    return weights, jax.random.normal(d, (steps, batch, width)).astype(dtype)


def sum_of_squares(hs: jax.Array) -> jax.Array:
    """The loss of all networks, in float32 at least: a sum in bfloat16 would be an error of the benchmark."""
    return jnp.sum(jnp.square(hs.astype(jnp.promote_types(hs.dtype, jnp.float32))))


MODELS = {"gru": (gru_loss, gru_arguments), "lstm": (lstm_loss, lstm_arguments)}


def flax_peer(kind: str, batch: int, steps: int, width: int, dtype: Any) -> Callable[[], Any] | None:
    """Flax's `nnx.RNN` with its own cell, from its own input; None where flax is not installed."""
    try:
        from flax import nnx
    except ImportError:
        return None
    cell = {"gru": nnx.GRUCell, "lstm": nnx.OptimizedLSTMCell}[kind]
    rnn = nnx.RNN(cell(width, width, dtype=dtype, rngs=nnx.Rngs(0)), time_major=True)
    graph, params, rest = nnx.split(rnn, nnx.Param, ...)
    zero = jnp.zeros((batch, width), dtype)
    carry = zero if kind == "gru" else (zero, zero)
    xs = jax.random.normal(jax.random.key(1), (steps, batch, width)).astype(dtype)

    def loss(params, xs):
        hs: Any = nnx.merge(graph, params, rest)(xs, initial_carry=carry)
        return jnp.sum(jnp.square(hs.astype(jnp.float32)))

    gradient = jax.jit(jax.value_and_grad(loss))
    return lambda: gradient(params, xs)


def torch_peer(kind: str, batch: int, steps: int, width: int, dtype: Any) -> Callable[[], Any] | None:
    """PyTorch's nn.GRU or nn.LSTM (cuDNN on a GPU), waiting for the device; None where torch is not installed."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    on_gpu = jax.default_backend() == "gpu" and torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    precision = getattr(torch, jnp.dtype(dtype).name)
    network = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[kind](width, width).to(device, precision)
    xs = torch.randn(steps, batch, width, device=device, dtype=precision)

    def run() -> None:
        network.zero_grad(set_to_none=True)
        network(xs)[0].float().square().sum().backward()
        if on_gpu:
            torch.cuda.synchronize()

    return run
