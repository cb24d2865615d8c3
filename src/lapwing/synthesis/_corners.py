"""How a mix of functions becomes one function: penalties that are small in a corner, and ways to choose.

A penalty is a function of the mixes [machines, neurons, functions] and of the links of the neurons to their own sums
[machines, neurons]. All are zero, or smallest, where at most one function of a mix is not zero, except `loop`: that one
is the published idea that an accumulator's weight and its recurrent weight should be equal, which makes a neuron either
accumulate or not.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

Corner = Literal["none", "entropy", "pairs", "lasso", "loop"]
Choice = Literal["largest", "trial"]
_TINY = 1e-6


def entropy(mixes: jax.Array, loops: jax.Array) -> jax.Array:
    """The entropy of the shares of the functions."""
    shares = jnp.abs(mixes) / (jnp.sum(jnp.abs(mixes), axis=-1, keepdims=True) + _TINY)
    return -jnp.sum(shares * jnp.log(shares + _TINY))


def pairs(mixes: jax.Array, loops: jax.Array) -> jax.Array:
    """The products of all pairs of weights in a mix."""
    sizes = jnp.abs(mixes)
    return jnp.sum(jnp.sum(sizes, axis=-1) ** 2 - jnp.sum(sizes**2, axis=-1)) / 2


def lasso(mixes: jax.Array, loops: jax.Array) -> jax.Array:
    """The sizes of all weights in a mix."""
    return jnp.sum(jnp.abs(mixes))


def loop(mixes: jax.Array, loops: jax.Array) -> jax.Array:
    """The difference between the weight of the accumulator, which is first in a mix, and its recurrent weight."""
    return jnp.sum(jnp.abs(mixes[..., 0] - loops))


CORNERS: dict[Corner, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "none": lambda mixes, loops: jnp.zeros(()),
    "entropy": entropy,
    "pairs": pairs,
    "lasso": lasso,
    "loop": loop,
}
