"""An Equinox network learns to multiply two numbers."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp

from lapwing.task import Task


@dataclass
class Config:  # Every field is an option: lapwing train FILE.py --width 64; its sweep: --grid width=16,32,64
    steps: int = 500
    learning_rate: float = 3e-3
    width: int = 32
    """units of a hidden layer"""
    depth: int = 2
    """number of hidden layers"""


def build(config: Config) -> Task:
    def model(key):
        return eqx.nn.MLP(2, "scalar", config.width, config.depth, jnp.tanh, key=key)

    def init(key):  # The parameters: the arrays of the model.
        return eqx.filter(model(key), eqx.is_array)

    _, static = eqx.partition(model(jax.random.key(0)), eqx.is_array)  # The rest: functions and sizes.

    def data(key, step):  # The batch of a step, examples first. The key is another one at every step.
        return jax.random.uniform(key, (64, 2), minval=-1)

    def loss(params, x):  # The number to minimize, and others to log.
        error = jax.vmap(eqx.combine(params, static))(x) - x[:, 0] * x[:, 1]
        return jnp.mean(error**2), {"error": jnp.mean(jnp.abs(error))}

    return Task(init, data, loss, evaluate=lambda params, key: {"loss": loss(params, data(key, 0))[0]})
