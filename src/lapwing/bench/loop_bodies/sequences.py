"""Sequence models other than recurrent networks: state spaces, linear attention, memories, decoders."""

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.bench.loop_bodies._body import body, mean_square
from lapwing.bench.loop_bodies.recurrent import layer_norm

silu, softplus = jax.nn.silu, jax.nn.softplus


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


def _attention(r, width, steps, batch):
    return {name: r.weight(width, width) for name in "qkvo"}, r.normal(steps, batch, width)


def _heads(x, heads):
    return x.reshape(*x.shape[:-1], heads, -1)


@body(
    "sequences",
    lambda r: (
        _attention(r, 64, 40, 4)[0] | {"i": r.weight(64, 2), "f": r.weight(64, 2)},
        r.normal(40, 4, 64),
    ),
)
def mlstm(scan, w, xs):
    """The matrix memory of xLSTM, with its stabilizer."""

    def step(carry, x):
        memory, normalizer, top = carry
        q, k, v = (_heads(x @ w[name], 2) for name in "qkv")
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


@body("sequences", lambda r: _attention(r, 64, 60, 4))
def linear_attention(scan, w, xs):
    def step(carry, x):
        memory, total = carry
        q, k, v = (_heads(x @ w[name], 4) for name in "qkv")
        q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
        memory, total = memory + k[..., :, None] * v[..., None, :], total + k
        out = jnp.einsum("bhk,bhkv->bhv", q, memory) / jnp.einsum("bhk,bhk->bh", q, total)[..., None]
        return (memory, total), out.reshape(x.shape) @ w["o"]

    return mean_square(scan(step, (jnp.zeros((4, 4, 16, 16)), jnp.zeros((4, 4, 16))), xs)[1])


@body("sequences", lambda r: _attention(r, 64, 60, 4))
def retention(scan, w, xs):
    decay = 1 - 2.0 ** -jnp.arange(5.0, 9.0)[:, None, None]

    def step(memory, x):
        q, k, v = (_heads(x @ w[name], 4) for name in "qkv")
        memory = decay * memory + jnp.einsum("bhk,bhv->bhkv", k, v)
        out = jnp.einsum("bhk,bhkv->bhv", q, memory)
        return memory, out.reshape(x.shape) @ w["o"]

    return mean_square(scan(step, jnp.zeros((4, 4, 16, 16)), xs)[1])


@body("sequences", lambda r: (_attention(r, 64, 60, 4)[0] | {"beta": r.weight(64, 4)}, r.normal(60, 4, 64)))
def delta_net(scan, w, xs):
    def step(memory, x):
        q, k, v = (_heads(x @ w[name], 4) for name in "qkv")
        k = k * jax.lax.rsqrt(jnp.sum(k * k, -1, keepdims=True) + 1e-6)
        beta = jax.nn.sigmoid(x @ w["beta"])[..., None]
        error = v - jnp.einsum("bhk,bhkv->bhv", k, memory)
        memory = memory + jnp.einsum("bhk,bhv->bhkv", beta * k, error)
        return memory, jnp.einsum("bhk,bhkv->bhv", q, memory).reshape(x.shape) @ w["o"]

    return mean_square(scan(step, jnp.zeros((4, 4, 16, 16)), xs)[1])


@body(
    "sequences",
    lambda r: (
        _attention(r, 128, 80, 8)[0] | {"decay": r.normal(128), "bonus": r.normal(128)},
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


@body("sequences", lambda r: (_attention(r, 48, 50, 4)[0] | {"rate": r.normal(1)}, r.normal(50, 4, 48)))
def fast_weights(scan, w, xs):
    def step(carry, x):
        h, fast = carry
        h = jnp.tanh(x @ w["q"] + h @ w["k"] + jnp.einsum("bij,bj->bi", fast, h))
        fast = 0.95 * fast + 0.1 * jax.nn.sigmoid(w["rate"]) * h[:, :, None] * h[:, None, :]
        return (h, fast), h @ w["o"]

    return mean_square(scan(step, (jnp.zeros((4, 48)), jnp.zeros((4, 48, 48))), xs)[1])


@body(
    "sequences",
    lambda r: (
        _attention(r, 64, 64, 4)[0] | {"up": r.weight(64, 128), "down": r.weight(128, 64)},
        r.normal(64, 4, 64),
    ),
)
def kv_cache_decoder(scan, w, xs):
    """One token at a time; keys and values are written to a cache in the carry."""

    def step(carry, x):
        i, keys, values = carry
        q, k, v = (_heads(x @ w[name], 4) for name in "qkv")
        keys = jax.lax.dynamic_update_index_in_dim(keys, k, i, 0)
        values = jax.lax.dynamic_update_index_in_dim(values, v, i, 0)
        scores = jnp.einsum("bhd,tbhd->bht", q, keys) / 4
        scores = jnp.where(jnp.arange(keys.shape[0]) <= i, scores, -1e9)
        out = jnp.einsum("bht,tbhd->bhd", jax.nn.softmax(scores), values).reshape(x.shape)
        x = x + out @ w["o"]
        return (i + 1, keys, values), x + silu(x @ w["up"]) @ w["down"]

    cache = jnp.zeros((64, 4, 4, 16))
    return mean_square(scan(step, (0, cache, cache), xs)[1])


@body(
    "sequences",
    lambda r: ([r.normal(2, 64, 32) for _ in range(1)] + [r.normal(16, 2, 32, 32), r.normal(16, 2, 32, 32)],),
)
def flash_attention(scan, qkv):
    """Attention over blocks of keys, with a running maximum and sum."""
    q, keys, values = qkv

    def step(carry, block):
        top, total, out = carry
        k, v = block
        scores = jnp.einsum("bqd,bkd->bqk", q, k) / q.shape[-1] ** 0.5
        new_top = jnp.maximum(top, scores.max(-1))
        weights, scale = jnp.exp(scores - new_top[..., None]), jnp.exp(top - new_top)
        out = out * scale[..., None] + jnp.einsum("bqk,bkd->bqd", weights, v)
        return (new_top, total * scale + weights.sum(-1), out), None

    init = (jnp.full((2, 64), -jnp.inf), jnp.zeros((2, 64)), jnp.zeros((2, 64, 32)))
    (_, total, out), _ = scan(step, init, (keys, values))
    return mean_square(out / total[..., None])


@body("sequences", lambda r: (r.weight(64, 1000), r.normal(8, 32, 64), r.integers(1000, 8, 32)))
def chunked_cross_entropy(scan, w, hidden, targets):
    """The logits of one chunk of tokens at a time, to save memory."""

    def step(total, chunk):
        h, target = chunk
        logits = h @ w
        right = jnp.take_along_axis(logits, target[:, None], 1)[:, 0]
        return total + jnp.sum(jax.nn.logsumexp(logits, -1) - right), None

    return scan(step, 0.0, (hidden, targets))[0] / targets.size


@body(
    "sequences",
    lambda r: (
        {
            "in": r.weight(32, 64),
            "state": r.weight(64, 64),
            "read": r.weight(64, 20),
            "write": r.weight(64, 20),
            "erase": r.weight(64, 20),
        },
        r.normal(40, 4, 12),
    ),
)
def memory_machine(scan, w, xs):
    """A neural Turing machine: content addressing, erase and add."""

    def address(memory, key):
        norms = jnp.linalg.norm(memory, axis=-1) * jnp.linalg.norm(key, axis=-1)[:, None] + 1e-3
        return jax.nn.softmax(5 * jnp.einsum("bnd,bd->bn", memory, key) / norms)

    def step(carry, x):
        memory, h, read = carry
        h = jnp.tanh(jnp.concatenate([x, read], -1) @ w["in"] + h @ w["state"])
        write = address(memory, h @ w["write"])[..., None]
        erase = jax.nn.sigmoid(h @ w["erase"])[:, None]
        memory = memory * (1 - write * erase) + write * jnp.tanh(h @ w["write"])[:, None]
        read = jnp.einsum("bn,bnd->bd", address(memory, h @ w["read"]), memory)
        return (memory, h, read), read

    init = (jnp.full((4, 32, 20), 0.1), jnp.zeros((4, 64)), jnp.zeros((4, 20)))
    return mean_square(scan(step, init, xs)[1])


@body(
    "sequences",
    lambda r: (
        {
            "in": r.weight(128, 64),
            "state": r.weight(64, 64),
            "query": r.weight(64, 64),
            "out": r.weight(64, 64),
        },
        r.normal(8, 50, 64),
        r.normal(30, 8, 64),
    ),
)
def attention_decoder(scan, w, encoded, xs):
    """A sequence-to-sequence decoder that attends to the encoder at every step."""

    def step(h, x):
        scores = jnp.einsum("btd,bd->bt", encoded, h @ w["query"]) / 8
        context = jnp.einsum("bt,btd->bd", jax.nn.softmax(scores), encoded)
        h = jnp.tanh(jnp.concatenate([x, context], -1) @ w["in"] + h @ w["state"])
        return h, h @ w["out"]

    return mean_square(scan(step, jnp.zeros((8, 64)), xs)[1])


@body("sequences", lambda r: (r.normal(64, 32), r.normal(16, 32)))
def hopfield(scan, patterns, queries):
    def step(state, _):
        state = 0.5 * state + 0.5 * jax.nn.softmax(state @ patterns.T) @ patterns
        return state, None

    return mean_square(scan(step, queries, None, length=40)[0])


@body(
    "sequences",
    lambda r: (
        {
            "norm": 1 + r.normal(64, scale=0.1),
            "shift": r.normal(64),
            "to": r.weight(64, 192),
            "o": r.weight(64, 64),
            "up": r.weight(64, 256),
            "down": r.weight(256, 64),
        },
        r.normal(4, 32, 64),
    ),
)
def universal_transformer(scan, w, x):
    """One layer, applied eight times."""

    def step(x, _):
        q, k, v = (
            _heads(part, 4) for part in jnp.split(layer_norm(x, w["norm"], w["shift"]) @ w["to"], 3, -1)
        )
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ w["o"]
        return x + jax.nn.gelu(layer_norm(x, w["norm"], w["shift"]) @ w["up"]) @ w["down"], None

    return mean_square(scan(step, x, None, length=8)[0])
