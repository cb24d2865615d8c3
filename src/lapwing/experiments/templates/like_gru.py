"""A GRU reads ones and zeros and says how many of them were ones."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

import lapwing as lw
from lapwing.task import Task


@dataclass
class Config:  # Every field is an option: lapwing train FILE.py --width 64; its sweep: --grid width=16,32,64
    steps: int = 500
    learning_rate: float = 1e-2
    width: int = 32
    """units of the GRU"""


def build(config: Config) -> Task:
    def init(key):  # The parameters: any tree of arrays.
        shapes = {"x": (1, 3 * config.width), "h": (config.width, 3 * config.width), "out": (config.width, 1)}
        keys = dict(zip(shapes, jax.random.split(key, len(shapes)), strict=True))
        return {name: jax.random.normal(keys[name], shapes[name]) / config.width**0.5 for name in shapes}

    def data(key, step):  # The batch of a step, examples first. The key is another one at every step.
        return jax.random.bernoulli(key, shape=(64, 20)).astype(jnp.float32)

    def loss(params, batch):  # The number to minimize, and others to log.
        def gru(h, x):
            at, before = jnp.split(x[:, None] @ params["x"], 3, 1), jnp.split(h @ params["h"], 3, 1)
            reset, keep = jax.nn.sigmoid(at[0] + before[0]), jax.nn.sigmoid(at[1] + before[1])
            return (1 - keep) * jnp.tanh(at[2] + reset * before[2]) + keep * h, None

        last, _ = lw.scan(gru, jnp.zeros((len(batch), config.width)), batch.T)  # As jax.lax.scan, but faster.
        error = (last @ params["out"])[:, 0] - batch.mean(1)
        return jnp.mean(error**2), {"error": jnp.mean(jnp.abs(error))}

    return Task(init, data, loss, evaluate=lambda params, key: {"loss": loss(params, data(key, 0))[0]})
