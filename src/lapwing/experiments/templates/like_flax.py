"""A Flax network learns to multiply two numbers. (pip install flax)"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx

from lapwing.task import Task


@dataclass
class Config:  # Every field is an option: lapwing train FILE.py --width 64; its sweep: --grid width=16,32,64
    steps: int = 500
    learning_rate: float = 1e-2
    width: int = 32  # units of the hidden layer


class Network(nnx.Module):
    def __init__(self, width: int, rngs: nnx.Rngs):
        self.hidden, self.out = nnx.Linear(2, width, rngs=rngs), nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(jnp.tanh(self.hidden(x)))[:, 0]


def build(config: Config) -> Task:
    def init(key):  # The parameters: the arrays of the network.
        return nnx.state(Network(config.width, nnx.Rngs(key)), nnx.Param)

    graph = nnx.graphdef(Network(config.width, nnx.Rngs(0)))

    def data(key, step):  # The batch of a step, examples first. The key is another one at every step.
        return jax.random.uniform(key, (64, 2), minval=-1)

    def loss(params, x):  # The number to minimize, and others to log.
        return jnp.mean((nnx.merge(graph, params)(x) - x[:, 0] * x[:, 1]) ** 2), {}

    return Task(init, data, loss, evaluate=lambda params, key: {"loss": loss(params, data(key, 0))[0]})
