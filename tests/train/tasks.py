"""Small tasks that the tests train."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.task import Task


def line(**changes: Any) -> Task:
    """Weights that should become 1, from noisy looks at them."""

    def loss(params, batch):
        error = jnp.mean((batch @ (params["w"] - 1.0)) ** 2)
        return error + params["b"] ** 2, {"distance": jnp.max(jnp.abs(params["w"] - 1.0))}

    parts: dict[str, Any] = {
        "init": lambda key: {"w": jnp.zeros(3), "b": jnp.float32(0.5)},
        "data": lambda key, step: jax.random.normal(key, (8, 3)),
        "loss": loss,
    }
    return Task(**{**parts, **changes})


def same_bits(a: Any, b: Any) -> bool:
    return jax.tree.all(jax.tree.map(lambda x, y: np.asarray(x).tobytes() == np.asarray(y).tobytes(), a, b))
