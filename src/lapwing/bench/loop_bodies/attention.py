"""Attention at every step or over blocks, and memories that are read by content."""

import jax
import jax.numpy as jnp

from lapwing.bench.loop_bodies._body import body, mean_square
from lapwing.bench.loop_bodies.recurrent import layer_norm
from lapwing.bench.loop_bodies.sequences import attention_weights, heads, projections

silu = jax.nn.silu


@body(
    "attention",
    lambda r: (
        attention_weights(r, 64) | {"up": r.weight(64, 128), "down": r.weight(128, 64)},
        r.normal(64, 4, 64),
    ),
)
def kv_cache_decoder(scan, w, xs):
    """One token at a time; keys and values are written to a cache in the carry."""

    def step(carry, x):
        i, keys, values = carry
        q, k, v = projections(w, x, 4)
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
    "attention",
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


@body("attention", lambda r: (r.weight(64, 1000), r.normal(8, 32, 64), r.integers(1000, 8, 32)))
def chunked_cross_entropy(scan, w, hidden, targets):
    """The logits of one chunk of tokens at a time, to save memory."""

    def step(total, chunk):
        h, target = chunk
        logits = h @ w
        right = jnp.take_along_axis(logits, target[:, None], 1)[:, 0]
        return total + jnp.sum(jax.nn.logsumexp(logits, -1) - right), None

    return scan(step, 0.0, (hidden, targets))[0] / targets.size


@body(
    "attention",
    lambda r: (
        {
            "in": r.weight(32, 64),
            "state": r.weight(64, 64),
            "read": r.weight(64, 20),
            "write": r.weight(64, 20),
            "erase": r.weight(64, 20),
        },
        r.normal(4, 32, 20, scale=0.3),
        r.normal(40, 4, 12),
    ),
)
def memory_machine(scan, w, memory, xs):
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

    init = (memory, jnp.zeros((4, 64)), jnp.zeros((4, 20)))
    return mean_square(scan(step, init, xs)[1])


@body(
    "attention",
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


@body("attention", lambda r: (r.normal(64, 32), r.normal(16, 32)))
def hopfield(scan, patterns, queries):
    def step(state, _):
        state = 0.5 * state + 0.5 * jax.nn.softmax(state @ patterns.T) @ patterns
        return state, None

    return mean_square(scan(step, queries, None, length=40)[0])


@body(
    "attention",
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
            heads(part, 4) for part in jnp.split(layer_norm(x, w["norm"], w["shift"]) @ w["to"], 3, -1)
        )
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ w["o"]
        return x + jax.nn.gelu(layer_norm(x, w["norm"], w["shift"]) @ w["up"]) @ w["down"], None

    return mean_square(scan(step, x, None, length=8)[0])
