"""A GRU learns to write Python, character by character, from the source of the standard library's argparse.

`lapwing train 09_char_gru.py`: 1.03 nats a character on the held-out tenth, in 37 s on two busy cores. The data are a
Python generator: a thread reads it ahead while the device computes, and a resumed run reads the same batches.
"""

import argparse
import inspect
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

import lapwing as lw

TEXT = np.frombuffer(inspect.getsource(argparse).encode("ascii", "replace"), np.uint8).astype(np.int32)
TRAIN, HELD_OUT = np.split(TEXT, [len(TEXT) * 9 // 10])


@dataclass
class Config:
    steps: int = 800
    learning_rate: float = 5e-3
    evaluate_every: int = 200
    seed: int = 0  # An option of every training, named here because the generator reads it too.
    width: int = 128
    """units of the GRU"""
    length: int = 64
    """characters of an example"""


def build(config: Config) -> lw.task.Task:
    def batches():  # A list, a DataLoader of PyTorch or a dataset of Grain would do as well.
        rng = np.random.default_rng(config.seed)
        while True:
            starts = rng.integers(len(TRAIN) - config.length, size=(32, 1))
            yield TRAIN[starts + np.arange(config.length + 1)]

    def init(key):
        width = config.width
        shapes = {"embed": (128, 3 * width), "hidden": (width, 3 * width), "out": (width, 128)}
        keys = dict(zip(shapes, jax.random.split(key, 3), strict=True))
        return {name: jax.random.normal(keys[name], shapes[name]) / width**0.5 for name in shapes}

    def loss(params, text):
        def gru(h, x):
            at, before = jnp.split(x, 3, -1), jnp.split(h @ params["hidden"], 3, -1)
            reset, keep = jax.nn.sigmoid(at[0] + before[0]), jax.nn.sigmoid(at[1] + before[1])
            h = keep * h + (1 - keep) * jnp.tanh(at[2] + reset * before[2])
            return h, h

        text = text.T  # Time first, as scans have it.
        _, states = lw.scan(gru, jnp.zeros((text.shape[1], config.width)), params["embed"][text[:-1]])
        log_p = jax.nn.log_softmax(states @ params["out"])
        return -jnp.take_along_axis(log_p, text[1:, :, None], -1).mean(), {}

    rows = HELD_OUT[: len(HELD_OUT) // 65 * 65].reshape(-1, 65)
    return lw.task.Task(init, batches, loss, validation=lw.task.Arrays(rows, batch_size=64))
