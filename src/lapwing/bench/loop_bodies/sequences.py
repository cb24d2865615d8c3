"""Sequence models other than recurrent networks: state spaces, linear attention, fast weights."""

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.bench.loop_bodies._body import body, mean_square

softplus = jax.nn.softplus


@body(
    "sequences",
    lambda r: (
        {
            "delta": r.weight(128, 128),
            "b": r.weight(128, 16),
            "c": r.weight(128, 16),
            "a": r.uniform(128, 16, low=0.0, high=1.0),
        },
        r.normal(40, 4, 128),
    ),
)
def mamba(scan, w, xs):
    """A selective state space: transition, input and output depend on x."""

    def step(h, x):
        delta = softplus(x @ w["delta"])[..., None]
        h = jnp.exp(-delta * jnp.exp(w["a"])) * h + delta * x[..., None] * (x @ w["b"])[..., None, :]
        return h, jnp.einsum("bdn,bn->bd", h, x @ w["c"])

    return mean_square(scan(step, jnp.zeros((4, 128, 16)), xs)[1])


def attention_weights(r, width):
    return {name: r.weight(width, width) for name in "qkvo"}


def heads(x, number):
    return x.reshape(*x.shape[:-1], number, -1)


def projections(w, x, number):
    """Queries, keys and values of each head."""
    return (heads(x @ w[name], number) for name in "qkv")


@body(
    "sequences",
    lambda r: (
        attention_weights(r, 64) | {"i": r.weight(64, 2), "f": r.weight(64, 2)},
        r.normal(40, 4, 64),
    ),
)
def mlstm(scan, w, xs):
    """The matrix memory of xLSTM, with its stabilizer."""

    def step(carry, x):
        memory, normalizer, top = carry
        q, k, v = projections(w, x, 2)
        k = k / k.shape[-1] ** 0.5
        i, f = x @ w["i"], jax.nn.log_sigmoid(x @ w["f"])
        new_top = jnp.maximum(f + top, i)
        keep, write = jnp.exp(f + top - new_top)[..., None], jnp.exp(i - new_top)[..., None]
        memory = keep[..., None] * memory + write[..., None] * v[..., :, None] * k[..., None, :]
        normalizer = keep * normalizer + write * k
        scale = jnp.maximum(jnp.abs(jnp.sum(normalizer * q, -1, keepdims=True)), 1.0)
        out = jnp.einsum("bhvk,bhk->bhv", memory, q) / scale
        return (memory, normalizer, new_top), out.reshape(x.shape) @ w["o"]

    init = (jnp.zeros((4, 2, 32, 32)), jnp.zeros((4, 2, 32)), jnp.zeros((4, 2)))
    return mean_square(scan(step, init, xs)[1])


@body("sequences", lambda r: (attention_weights(r, 64), r.normal(60, 4, 64)))
def linear_attention(scan, w, xs):
    def step(carry, x):
        memory, total = carry
        q, k, v = projections(w, x, 4)
        q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
        memory, total = memory + k[..., :, None] * v[..., None, :], total + k
        out = jnp.einsum("bhk,bhkv->bhv", q, memory) / jnp.einsum("bhk,bhk->bh", q, total)[..., None]
        return (memory, total), out.reshape(x.shape) @ w["o"]

    return mean_square(scan(step, (jnp.zeros((4, 4, 16, 16)), jnp.zeros((4, 4, 16))), xs)[1])


@body("sequences", lambda r: (attention_weights(r, 64), r.normal(60, 4, 64)))
def retention(scan, w, xs):
    decay = 1 - 2.0 ** -jnp.arange(5.0, 9.0)[:, None, None]

    def step(memory, x):
        q, k, v = projections(w, x, 4)
        memory = decay * memory + jnp.einsum("bhk,bhv->bhkv", k, v)
        out = jnp.einsum("bhk,bhkv->bhv", q, memory)
        return memory, out.reshape(x.shape) @ w["o"]

    return mean_square(scan(step, jnp.zeros((4, 4, 16, 16)), xs)[1])


@body("sequences", lambda r: (attention_weights(r, 64) | {"beta": r.weight(64, 4)}, r.normal(60, 4, 64)))
def delta_net(scan, w, xs):
    def step(memory, x):
        q, k, v = projections(w, x, 4)
        k = k * jax.lax.rsqrt(jnp.sum(k * k, -1, keepdims=True) + 1e-6)
        beta = jax.nn.sigmoid(x @ w["beta"])[..., None]
        error = v - jnp.einsum("bhk,bhkv->bhv", k, memory)
        memory = memory + jnp.einsum("bhk,bhv->bhkv", beta * k, error)
        return memory, jnp.einsum("bhk,bhkv->bhv", q, memory).reshape(x.shape) @ w["o"]

    return mean_square(scan(step, jnp.zeros((4, 4, 16, 16)), xs)[1])


@body(
    "sequences",
    lambda r: (
        attention_weights(r, 128) | {"decay": r.normal(128), "bonus": r.normal(128)},
        r.normal(80, 8, 128),
    ),
)
def rwkv(scan, w, xs):
    def step(carry, x):
        before, top, bottom = carry
        mixed = 0.5 * (x + before)
        gate, k, v = jax.nn.sigmoid(mixed @ w["q"]), jnp.exp(jnp.tanh(mixed @ w["k"])), mixed @ w["v"]
        weight = jnp.exp(w["bonus"]) * k
        out = (top + weight * v) / (bottom + weight)
        decay = jnp.exp(-jnp.exp(w["decay"]))
        return (x, decay * top + k * v, decay * bottom + k), (gate * out) @ w["o"]

    zeros = jnp.zeros(xs.shape[1:])
    return mean_square(scan(step, (zeros, zeros, zeros), xs)[1])


@body(
    "sequences",
    lambda r: (
        {"re": r.uniform(64, 16, low=-3, high=0), "im": r.uniform(64, 16, high=3), "c": r.normal(2, 64, 16)},
        r.normal(200, 4, 64),
    ),
)
def s4_diagonal(scan, w, xs):
    decay = jnp.exp(jax.lax.complex(-0.1 * jnp.exp(w["re"]), 0.1 * w["im"]))
    output = jax.lax.complex(w["c"][0], w["c"][1])

    def step(h, x):
        h = decay * h + 0.1 * x[..., None]
        return h, jnp.real(jnp.sum(output * h, -1))

    return mean_square(scan(step, jnp.zeros((4, 64, 16), jnp.complex64), xs)[1])


def _hippo(order: int):
    n = np.arange(order)
    lower = -np.sqrt(np.outer(2 * n + 1, 2 * n + 1)) * (n[:, None] > n)
    a, b = lower - np.diag(n + 1), np.sqrt(2 * n + 1)
    implicit = np.linalg.inv(np.eye(order) - 0.005 * a)
    return implicit @ (np.eye(order) + 0.005 * a), 0.01 * implicit @ b


@body("sequences", lambda r: (r.weight(64, 8), *_hippo(64), r.normal(300, 8, 8)))
def hippo(scan, readout, a, b, xs):
    def step(h, x):
        h = jnp.einsum("mn,bcn->bcm", a, h) + x[..., None] * b
        return h, h @ readout

    return mean_square(scan(step, jnp.zeros((8, 8, 64)), xs)[1])


@body(
    "sequences",
    lambda r: ({name: r.weight(48, 48) for name in "qko"} | {"rate": r.normal(1)}, r.normal(50, 4, 48)),
)
def fast_weights(scan, w, xs):
    def step(carry, x):
        h, fast = carry
        h = jnp.tanh(x @ w["q"] + 0.5 * h @ w["k"] + jnp.einsum("bij,bj->bi", fast, h))
        fast = 0.95 * fast + 0.1 * jax.nn.sigmoid(w["rate"]) * h[:, :, None] * h[:, None, :]
        return (h, fast), h @ w["o"]

    return mean_square(scan(step, (jnp.zeros((4, 48)), jnp.zeros((4, 48, 48))), xs)[1])


@body(
    "sequences",
    lambda r: (
        {
            "gate": r.weight(64, 64),
            "value": r.weight(64, 64),
            "out": r.weight(64, 64),
            "taps": r.normal(4, 64),
        },
        r.normal(60, 8, 64),
    ),
)
def gated_convolution(scan, w, xs):
    """A causal convolution over the last four inputs, kept in the carry, with a gate on either side."""

    def step(window, x):
        window = jnp.concatenate([window[1:], (x @ w["value"])[None]])
        mixed = jnp.einsum("kbd,kd->bd", window, w["taps"])
        return window, (jax.nn.silu(x @ w["gate"]) * mixed) @ w["out"]

    return mean_square(scan(step, jnp.zeros((4, 8, 64)), xs)[1])
