"""A training loop of your own, here in plain JAX, as a run: metrics, live control, pause, laps, pictures, resumption.

While it runs, from another terminal: `lapwing set latest lr=0.01`, `lapwing pause latest`, `lapwing stop latest`,
`lapwing board`. After Ctrl-C or a kill, `python 07_any_loop.py RUN_FOLDER` continues.
"""

import io
import sys

import jax
import jax.numpy as jnp
import numpy as np

import lapwing as lw

STEPS = 600


def predict(params, x):
    return jnp.tanh(x @ params["hidden"] + params["bias"]) @ params["out"]


@jax.jit
def update(params, key, learning_rate):  # The rate is an argument, so a new one compiles nothing.
    x = jax.random.uniform(key, (64, 1), minval=-3.0, maxval=3.0)
    loss, slope = jax.value_and_grad(lambda p: jnp.mean((predict(p, x) - jnp.sin(x)) ** 2))(params)
    return jax.tree.map(lambda p, s: p - learning_rate * s, params, slope), loss


def save(done):
    content = io.BytesIO()
    np.savez(content, done=done, **params)
    run.put("checkpoints/state.npz", content.getvalue())  # The old file or the new one, never half of it.


run = lw.Run.reopen(sys.argv[1]) if sys.argv[1:] else lw.Run.create("sine-jax", {"steps": STEPS})
key = jax.random.key(0)
params, start = (
    {"hidden": jax.random.normal(key, (1, 32)), "bias": jnp.zeros(32), "out": jnp.zeros((32, 1))},
    0,
)
if (stored := run.checkpoints / "state.npz").exists():
    with np.load(stored) as state:
        params, start = {name: jnp.asarray(state[name]) for name in params}, int(state["done"])

with run:
    for step in run.steps(STEPS, start=start, checkpoint=save, checkpoint_every=100):
        learning_rate = run.control("learning_rate", 0.02)
        with run.lap("update"):
            step_key = jax.random.fold_in(key, step)
            params, loss = jax.block_until_ready(update(params, step_key, learning_rate))
        run.log(loss=loss, learning_rate=learning_rate)
        if step % 100 == 0:
            run.log(hidden=lw.Histogram(params["hidden"]))

print(f"{run.state}: {run.folder}, loss {run.latest()['loss']:.4f}")
