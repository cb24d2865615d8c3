"""Recurrent cells of many kinds, written as people write them: each a loss of (scan, weights, xs)."""

import dataclasses
import functools
import os
import zlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

# A kernel needs more of everything than a simulation of one.
B, T, D, X = map(int, os.environ.get("LAPWING_CELL_SIZES", "6,4,24,5").split(","))
H = 3


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """A loop, and what its kernels need: exchanges of a forward step."""

    name: str
    loss: Callable[..., Any]
    shapes: dict[str, tuple[int, ...]]
    exchanges: int

    def __str__(self) -> str:
        return self.name

    def weights(self, dtype: Any = jnp.float32) -> dict[str, jax.Array]:
        return {name: _normal(name, shape, dtype) for name, shape in self.shapes.items()}


def _normal(name: str, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    numbers = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
    return jnp.asarray(numbers / np.sqrt(max(shape[-1:], default=1)), dtype)


CELLS: list[Cell] = []


def cell(exchanges: int = 1, **shapes: tuple[int, ...]):
    def add(loss: Callable[..., Any]) -> Callable[..., Any]:
        CELLS.append(Cell(loss.__name__, loss, {"xs": (T, B, X), **shapes}, exchanges))
        return loss

    return add


def _zeros(like: jax.Array, *shape: int) -> jax.Array:
    return jnp.zeros(shape or (B, D), like.dtype)


def _norm(v: jax.Array) -> jax.Array:
    centred = v - v.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def _gates(i: Any, f: Any, u: Any, o: Any, c: Any) -> tuple[Any, Any]:
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(u)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


@cell(w=(X, D), r=(D, D))
def rnn(scan, xs, w, r):
    def step(h, x):
        h = jnp.tanh(x @ w + h @ r)
        return h, h

    return jnp.sum(scan(step, _zeros(xs), xs)[1] ** 2)


@cell(w=(X, 4 * D), r=(D, 4 * D), b=(4 * D,))
def lstm(scan, xs, w, r, b):
    def step(carry, x):
        h, c = carry
        h, c = _gates(*jnp.split(x @ w + h @ r + b, 4, -1), c)
        return (h, c), h

    return jnp.sum(scan(step, (_zeros(xs), _zeros(xs)), xs)[1] ** 2)


@cell(exchanges=2, w=(X, 3 * D), r=(D, 2 * D), q=(D, D))
def gru(scan, xs, w, r, q):
    def step(h, x):
        z, g, n = jnp.split(x @ w, 3, -1)
        a, b = jnp.split(h @ r, 2, -1)
        z, g = jax.nn.sigmoid(z + a), jax.nn.sigmoid(g + b)
        h = (1 - z) * h + z * jnp.tanh(n + (g * h) @ q)
        return h, h

    return jnp.sum(scan(step, _zeros(xs), xs)[1] ** 2)


@cell(w=(X, 3 * D), r=(D, D), s=(D, D), q=(D, D), b=(D,), lengths=(B,))
def masked_gru(scan, xs, w, r, s, q, b, lengths):
    """Three products of one value, and rows that end at different steps."""
    ends = jnp.arange(T)[:, None] < 2 + (lengths > 0)

    def step(h, given):
        x, alive = given
        z, g, n = jnp.split(x @ w, 3, -1)
        z, g = jax.nn.sigmoid(z + h @ r), jax.nn.sigmoid(g + h @ s)
        new = (1 - z) * h + z * jnp.tanh(n + g * (h @ q + b))
        h = jnp.where(alive[:, None], new, h)
        return h, h

    return jnp.sum(scan(step, _zeros(xs), (xs, ends))[1] ** 2)


@cell(exchanges=5, w=(X, 4 * D), r=(D, 4 * D), g=(4 * D,))
def layer_norm_lstm(scan, xs, w, r, g):
    def step(carry, x):
        h, c = carry
        h, c = _gates(*jnp.split(_norm(h @ r) * g + x @ w, 4, -1), c)
        return (_norm(h), c), h

    return jnp.sum(scan(step, (_zeros(xs), _zeros(xs)), xs)[1] ** 2)


@cell(w=(X, 4 * D), r=(D, 4 * D), p=(3, D))
def peephole_lstm(scan, xs, w, r, p):
    def step(carry, x):
        h, c = carry
        i, f, u, o = jnp.split(x @ w + h @ r, 4, -1)
        new = jax.nn.sigmoid(f + p[0] * c) * c + jax.nn.sigmoid(i + p[1] * c) * jnp.tanh(u)
        h = jax.nn.sigmoid(o + p[2] * new) * jnp.tanh(new)
        return (h, new), h

    return jnp.sum(scan(step, (_zeros(xs), _zeros(xs)), xs)[1] ** 2)


@cell(w=(X, 4 * D), r=(4, H, D // H, D // H))
def slstm(scan, xs, w, r):
    """Heads: block-diagonal weights, exponential gates with a stabilizer."""

    def step(carry, x):
        h, c, n, m = carry
        gates = jnp.einsum("bhd,ghde->bghe", h, r) + (x @ w).reshape(B, 4, H, D // H)
        i, f, z, o = (gates[:, gate] for gate in range(4))
        kept = jax.nn.log_sigmoid(f) + m
        new = jnp.maximum(kept, i)
        i, f = jnp.exp(i - new), jnp.exp(kept - new)
        c, n = f * c + i * jnp.tanh(z), f * n + i
        h = jax.nn.sigmoid(o) * c / jnp.maximum(n, 1e-6)
        return (h, c, n, new), h

    start = _zeros(xs, B, H, D // H)
    return jnp.sum(scan(step, (start,) * 4, xs)[1] ** 2)


@cell(w=(X, 4 * D), r=(H, D // H, 4 * D // H))
def lstm_with_heads(scan, xs, w, r):
    """The gates inside each head."""

    def step(carry, x):
        h, c = carry
        gates = jnp.einsum("bhd,hdk->bhk", h, r).reshape(B, H, 4, D // H).transpose(0, 2, 1, 3)
        gates = gates + (x @ w).reshape(B, 4, H, D // H)
        h, c = _gates(*(gates[:, gate] for gate in range(4)), c)
        return (h, c), h

    start = _zeros(xs, B, H, D // H)
    return jnp.sum(scan(step, (start, start), xs)[1] ** 2)


@cell(exchanges=2, w=(X, 4 * D), r=(8, 4 * D), q=(D, 8))
def lstm_with_projection(scan, xs, w, r, q):
    def step(carry, x):
        h, c = carry
        h, c = _gates(*jnp.split(x @ w + h @ r, 4, -1), c)
        return (h @ q, c), h

    return jnp.sum(scan(step, (_zeros(xs, B, 8), _zeros(xs)), xs)[1] ** 2)


@cell(exchanges=2, w=(X, D), r=(D, D), s=(D, D), q=(D, D))
def two_layers(scan, xs, w, r, s, q):
    def step(carry, x):
        a, b = carry
        a = jnp.tanh(x @ w + a @ r)
        b = jnp.tanh(a @ s + b @ q)
        return (a, b), b

    return jnp.sum(scan(step, (_zeros(xs), _zeros(xs)), xs)[1] ** 2)


@cell(exchanges=3, w=(X, D), r=(D, D))
def softmax_state(scan, xs, w, r):
    def step(h, x):
        return jax.nn.softmax(x @ w + h @ r), h

    return jnp.sum(scan(step, _zeros(xs) + 1 / D, xs)[1] ** 2)


@cell(w=(X, D), r=(D, D), a=(D,))
def our_own(scan, xs, w, r, a):
    """An invention: two clocks, a temperature that falls from step to step, softplus, and two outputs."""
    temperature = 1.0 + jnp.arange(T, 0, -1).astype(xs.dtype)

    def step(carry, given):
        h, slow = carry
        x, warm = given
        drive = jax.nn.softplus(x @ w + h @ r) - a * slow
        slow = 0.9 * slow + 0.1 * h
        h = jnp.where(drive > 0.7, jnp.sin(drive), drive**3) / warm
        return (h, slow), (h, slow)

    hs, slow = scan(step, (_zeros(xs), _zeros(xs)), (xs, temperature))[1]
    return jnp.sum(hs**2) + jnp.sum(slow**2)


@cell(w=(X, D), r=(D, D))
def mapped(scan, xs, w, r):
    """`vmap` outside: rows are an axis that the step does not see."""

    def one(xs):
        def step(h, x):
            h = jnp.tanh(w.T @ x + r.T @ h)
            return h, h

        return scan(step, jnp.zeros(D, xs.dtype), xs, reverse=True)[1]

    return jnp.sum(jax.vmap(one, in_axes=1)(xs) ** 2)


@cell(w=(X, D), r=(D, D))
def mapped_twice(scan, xs, w, r):
    def one(xs):
        return scan(
            lambda h, x: ((new := jnp.tanh(x @ w + h @ r)), new), jnp.zeros((B // 2, D), xs.dtype), xs
        )[1]

    return jnp.sum(jax.vmap(one, in_axes=1)(xs.reshape(T, 2, B // 2, X)) ** 2)


def _equinox(kind: Any, scan: Any, xs: Any, **arrays: Any) -> Any:
    blank = kind(X, D, key=jax.random.key(0))
    made = eqx.tree_at(
        lambda m: (m.weight_ih, m.weight_hh, m.bias), blank, (arrays["w"], arrays["r"], arrays["b"])
    )
    if kind is eqx.nn.GRUCell:
        made = eqx.tree_at(lambda m: m.bias_n, made, arrays["n"])

    def step(h, x):
        h = jax.vmap(made)(x, h)
        return h, h[0] if isinstance(h, tuple) else h

    start = _zeros(xs) if kind is eqx.nn.GRUCell else (_zeros(xs), _zeros(xs))
    return jnp.sum(scan(step, start, xs)[1] ** 2)


CELLS += [
    Cell(
        "equinox_gru",
        functools.partial(_equinox, eqx.nn.GRUCell),
        {"xs": (T, B, X), "w": (3 * D, X), "r": (3 * D, D), "b": (3 * D,), "n": (D,)},
        1,
    ),
    Cell(
        "equinox_lstm",
        functools.partial(_equinox, eqx.nn.LSTMCell),
        {"xs": (T, B, X), "w": (4 * D, X), "r": (4 * D, D), "b": (4 * D,)},
        1,
    ),
]
