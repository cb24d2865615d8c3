"""Adam as published runs of 2022 computed it: everything in single precision, the powers of beta by multiplication.

`optax.adam` computes `1 - beta**t` in each step and `1 - beta` in double precision. In single precision 1 - 0.999
is off by 5e-5, which cancels only if both come from the same rounded beta. The two agree in what they learn, but a
published run has the same digits only with the same roundings.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax


class PublishedAdamState(NamedTuple):
    """Moments like the parameters, and the powers of the two betas."""

    mean: Any
    square: Any
    powers: jax.Array


def adam_as_published(
    learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformation:
    """Returns Adam with the roundings of single precision, as a function of the learning rate for `Task.optimizer`.

    >>> import jax.numpy as jnp
    >>> adam = adam_as_published(0.1)
    >>> updates, state = adam.update(jnp.array([3.0, -0.5]), adam.init(jnp.zeros(2)))
    >>> [round(float(update), 6) for update in updates]
    [-0.1, 0.1]
    """
    betas = np.array([b1, b2], np.float32)
    rest = np.float32(1) - betas
    epsilon = np.float32(eps)

    def init(params: Any) -> PublishedAdamState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return PublishedAdamState(zeros, zeros, jnp.asarray(betas))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, PublishedAdamState]:
        mean = jax.tree.map(lambda m, g: betas[0] * m + rest[0] * g, state.mean, updates)
        square = jax.tree.map(lambda v, g: betas[1] * v + rest[1] * (g * g), state.square, updates)
        first, second = 1 - state.powers[0], 1 - state.powers[1]
        step = jax.tree.map(
            lambda m, v: -learning_rate * (m / first / (jnp.sqrt(v / second) + epsilon)), mean, square
        )
        return step, PublishedAdamState(mean, square, state.powers * betas)

    return optax.GradientTransformation(init, update)
