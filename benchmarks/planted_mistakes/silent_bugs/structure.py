"""Mistakes in how a program is put together."""

from typing import Any

import jax
import jax.numpy as jnp

from lapwing.task import Task

from .._parts import apply, config, layers, planted


@planted(
    cause=r"dead|no effect|never|unused|layer|no gradient|zero gradient|not used",
    sees="four layers are no better than one",
)
def every_layer_reads_the_input(wrong: bool) -> Any:
    """In the loop over the layers each one is applied to `x` instead of to `h`: only the last one counts."""

    def predict(params: Any, batch: Any) -> jax.Array:
        *hidden, last = params
        x = h = batch["x"]
        for layer in hidden:
            h = jnp.tanh(apply(layer, x if wrong else h))
        return apply(last, h)[:, 0]

    def data(key: jax.Array, step: Any) -> Any:
        x = jax.random.uniform(key, (64, 8), minval=-2, maxval=2)
        return {"x": x, "y": jnp.cos(jnp.pi * x[:, 0]) + jnp.cos(jnp.pi * x[:, 1])}

    task = Task(
        init=lambda key: layers(key, 8, 8, 8, 8, 1),
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
    )
    return task, config(800, 1e-2)
