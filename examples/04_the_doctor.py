"""Find two mistakes that cost other people weeks: swapped axes, and a parameter without effect."""

import jax
import jax.numpy as jnp

from lapwing import check


def mixed(x: jax.Array, axis: int) -> jax.Array:
    """Adds the mean over the time steps of a sequence; with the wrong axis, over the examples of the batch."""
    return x + jnp.mean(x, axis=axis, keepdims=True)


def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return jnp.mean((mixed(x, axis=1) @ params["weights"] - 1.0) ** 2)


sequences = jax.random.normal(jax.random.key(0), (8, 5, 3))
params = {"weights": jnp.ones(3), "latents": jnp.ones(4)}

print(check.batch_independence(lambda x: mixed(x, axis=1), sequences, batch_axis=0))
print(check.gradients(loss, params, sequences))
for run in (
    lambda: check.batch_independence(lambda x: mixed(x, axis=0), sequences, batch_axis=0),
    lambda: check.dead_parameters(loss, params, [sequences]),
):
    try:
        run()
    except check.CheckError as error:
        print(f"\n{error.check} failed: {error}")
