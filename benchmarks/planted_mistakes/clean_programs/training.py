"""Correct programs whose optimizer looks suspicious."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from lapwing.bench.doctor import clean
from lapwing.task import Task

from .._parts import blobs, config, forward, layers, nll


@clean
def clipping_warmup_and_a_mask_of_decay() -> Any:
    """Clipping first, decay of matrices only, a warm-up from 0, and a cosine; updates every second batch."""

    def matrices(params: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.ndim > 1, params)

    rate = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 20, 200)
    chain = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=0.01, mask=matrices))

    def init(key: jax.Array) -> Any:
        net = layers(key, 5, 24, 24, 3)
        return {"net": net, "shift": jnp.zeros(5), "log_scale": jnp.zeros(5)}

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params["net"], batch["x"] * jnp.exp(params["log_scale"]) + params["shift"])

    task = Task(
        init=init,
        data=lambda key, step: blobs(key),
        loss=lambda params, batch: (nll(predict(params, batch), batch["label"]), {}),
        optimizer=optax.MultiSteps(chain, 2),
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=3,
    )
    return task, config(400, 1e-3)
