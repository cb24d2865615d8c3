"""The learning rate over the steps, as a factor that the step computes from its own number."""

import jax
import jax.numpy as jnp

from ._config import FitConfig


def rate_factor(config: FitConfig, step: jax.Array) -> jax.Array:
    """What the rate is multiplied by at a step. A plateau's cuts are made by the host, in the rate itself.

    >>> from ._config import Schedule
    >>> config = FitConfig(steps=101, schedule=Schedule("cosine", warmup=10))
    >>> [round(float(rate_factor(config, jnp.int32(step))), 3) for step in (0, 4, 55, 100)]
    [0.1, 0.5, 0.5, 0.0]
    """
    schedule, at = config.schedule, step.astype(jnp.float32)
    factor = jnp.float32(1.0)
    if schedule.kind == "cosine":
        last = max(config.steps - 1, schedule.warmup + 1)
        done = jnp.clip((at - schedule.warmup) / (last - schedule.warmup), 0.0, 1.0)
        factor = schedule.floor + (1 - schedule.floor) * 0.5 * (1 + jnp.cos(jnp.pi * done))
    if schedule.kind == "points":
        steps, factors = zip(*schedule.points, strict=True)
        factor = jnp.interp(at, jnp.asarray(steps, jnp.float32), jnp.asarray(factors, jnp.float32))
    if schedule.warmup:
        factor = factor * jnp.minimum(1.0, (at + 1) / schedule.warmup)
    return factor
