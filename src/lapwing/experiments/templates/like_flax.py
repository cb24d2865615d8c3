"""A Flax network learns to multiply two numbers. (pip install flax)"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx

import lapwing as lw


@dataclass
class Config:  # Every field is an option: lapwing train FILE.py --width 64; its sweep: --grid width=16,32,64
    steps: int = 500
    learning_rate: float = 1e-2
    width: int = 32
    """units of the hidden layer"""


class Network(nnx.Module):
    def __init__(self, width: int, rngs: nnx.Rngs):
        self.hidden, self.out = nnx.Linear(2, width, rngs=rngs), nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(jnp.tanh(self.hidden(x)))[:, 0]


def build(config: Config) -> lw.task.Task:
    def data(key, step):  # The batch of a step, examples first. The key is another one at every step.
        return jax.random.uniform(key, (64, 2), minval=-1)

    def loss(model, x):  # The number to minimize, and others to log.
        error = model(x) - x[:, 0] * x[:, 1]
        return jnp.mean(error**2), {"error": jnp.mean(jnp.abs(error))}

    def evaluate(model, key):
        return {"loss": loss(model, data(key, 0))[0]}

    return lw.task.nnx(lambda rngs: Network(config.width, rngs), loss, data=data, evaluate=evaluate)
