"""A task of three functions, trained by `fit`; metrics, checkpoints and journal are in the run folder."""

import jax
import jax.numpy as jnp

import lapwing as lw
from lapwing.task import Task
from lapwing.train import FitConfig, fit


def init(key):
    of_hidden, of_out = jax.random.split(key)
    return {
        "hidden": jax.random.normal(of_hidden, (1, 32)),
        "bias": jnp.zeros(32),
        "out": jax.random.normal(of_out, (32, 1)) / 32,
    }


def data(key, step):
    x = jax.random.uniform(key, (64, 1), minval=-3.0, maxval=3.0)
    return x, jnp.sin(x)


def predict(params, x):
    return jnp.tanh(x @ params["hidden"] + params["bias"]) @ params["out"]


def loss(params, batch):
    x, y = batch
    difference = predict(params, x) - y
    return jnp.mean(difference**2), {"worst": jnp.max(jnp.abs(difference))}


config = FitConfig(steps=1000, learning_rate=0.01, clip=1.0, steps_per_call=10)
run = lw.Run.create("sine", config)
result = fit(Task(init, data, loss), config, run)

answer = predict(result.params, jnp.array([[1.0]]))
print(f"sin(1) is {jnp.sin(1.0):.3f}, and the network says {answer.item():.3f}")
print(f"the loss of all {len(run.columns()['loss'])} steps is in {run.folder / 'metrics.jsonl'}")
