"""A Hopper GPU that is not there: programs are lowered for it, and not run."""

from typing import Any

import jax
import jax.numpy as jnp

import lapwing as lw
from lapwing.loops._costs import platform_is
from lapwing.loops.persistent._device import Device
from lapwing.loops.persistent._plan import Gpu

D, B, T = 256, 16, 100
H200 = Device("NVIDIA H200", Gpu())


def lstm(w, r, xs, scan=lw.scan, width=D):
    def step(state, x):
        h, c = state
        i, f, u, o = jnp.split(x @ w + h @ r, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(u)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((xs.shape[1], width), xs.dtype)
    return jnp.sum(scan(step, (zeros, zeros), xs)[1].astype(jnp.float32) ** 2)


def array(*shape: int, dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


SHAPES = (array(D, 4 * D), array(D, 4 * D), array(T, B, D))
gradient = jax.value_and_grad(lstm, (0, 1))


def lowered(fn: Any, *shapes: Any) -> str:
    """What a GPU gets to compile. Always lowered anew, whatever jax has lowered before."""
    with platform_is("gpu"):
        return jax.jit(lambda *args: fn(*args)).trace(*shapes).lower(lowering_platforms=("cuda",)).as_text()


def count(text: str) -> tuple[int, int]:
    """Kernels and loops."""
    return text.count("custom_call @mosaic_gpu"), text.count("stablehlo.while")
