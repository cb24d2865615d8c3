"""A transformer of one layer learns to continue sequences that repeat."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from lapwing.task import Task


@dataclass
class Config:  # Every field is an option: lapwing train FILE.py --width 64; its sweep: --grid width=16,32,64
    steps: int = 500
    learning_rate: float = 3e-3
    width: int = 32
    """size of a token's vector"""


def build(config: Config) -> Task:
    def init(key):  # The parameters: any tree of arrays.
        n, d, names = 8, config.width, ("embed", "position", "qkv", "up", "down", "out")
        shapes = dict(zip(names, [(n, d), (16, d), (d, 3 * d), (d, 4 * d), (4 * d, d), (d, n)], strict=True))
        keys = dict(zip(names, jax.random.split(key, len(names)), strict=True))
        return {name: jax.random.normal(keys[name], shapes[name]) * d**-0.5 for name in names}

    def data(key, step):  # The batch of a step, examples first. The key is another one at every step.
        return jnp.tile(jax.random.randint(key, (64, 4), 0, 8), (1, 4))

    def logits(params, tokens):
        x = params["embed"][tokens] + params["position"][: tokens.shape[1]]
        q, k, v = (a[:, :, None] for a in jnp.split(x @ params["qkv"], 3, axis=-1))  # One head.
        x = x + jax.nn.dot_product_attention(q, k, v, is_causal=True)[:, :, 0]
        return (x + jax.nn.gelu(x @ params["up"]) @ params["down"]) @ params["out"]

    def loss(params, tokens):  # The number to minimize, and others to log.
        log_p = jax.nn.log_softmax(logits(params, tokens[:, :-1]))[:, 3:]  # The first four cannot be known.
        return -jnp.take_along_axis(log_p, tokens[:, 4:, None], -1).mean(), {}

    return Task(init, data, loss, evaluate=lambda params, key: {"loss": loss(params, data(key, 0))[0]})
