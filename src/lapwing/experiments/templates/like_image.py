"""A small convolutional network tells horizontal stripes from vertical ones, under noise."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from lapwing.task import Task


@dataclass
class Config:  # Every field is an option: lapwing train FILE.py --width 16; its sweep: --grid width=4,8,16
    steps: int = 300
    learning_rate: float = 3e-3
    width: int = 8
    """channels of the convolution"""
    noise: float = 1.0  # Text beside or below a field is its help.


def build(config: Config) -> Task:
    def init(key):  # The parameters: any tree of arrays.
        kernel = jax.random.normal(key, (3, 3, 1, config.width)) / 3
        return {"kernel": kernel, "out": jnp.zeros((config.width, 2))}

    def data(key, step):  # The batch of a step, examples first. The key is another one at every step.
        labels = jnp.arange(64) % 2
        stripes = jnp.tile(jnp.arange(8) % 2 * 2.0 - 1, (8, 1))
        images = jnp.where(labels[:, None, None] == 1, stripes, stripes.T)
        return (images + config.noise * jax.random.normal(key, images.shape))[..., None], labels

    def loss(params, batch):  # The number to minimize, and others to log.
        images, labels = batch
        layout = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(images, params["kernel"], (1, 1), "SAME", dimension_numbers=layout)
        log_p = jax.nn.log_softmax(jax.nn.relu(x).mean((1, 2)) @ params["out"])
        accuracy = jnp.mean(jnp.argmax(log_p, -1) == labels)
        return -jnp.take_along_axis(log_p, labels[:, None], -1).mean(), {"accuracy": accuracy}

    return Task(init, data, loss, evaluate=lambda params, key: loss(params, data(key, 0))[1])
