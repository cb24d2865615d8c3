"""Small loops of simulators and filters: what a step of each computes, and a loss to differentiate.

Each is a function of a `scan` (jax's or another) that returns the loss and its arguments.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Scan = Callable[..., Any]
Loss = tuple[Callable[..., Any], tuple[Any, ...]]


def scalar_carries(scan: Scan, carries: int = 60, steps: int = 614) -> Loss:
    """Many scalars, each a carry of its own, coupled to the next: a filter written out by hand."""

    def loss(rates, xs):
        def step(carry, x):
            shifted = [*carry[1:], carry[0]]
            new = [
                jnp.tanh(rate * value + 0.1 * other + x)
                for rate, value, other in zip(rates, carry, shifted, strict=True)
            ]
            return new, new[0]

        last, ys = scan(step, [jnp.float32(0.1)] * carries, xs)
        return sum(last) + jnp.sum(ys)

    rates = [jnp.float32(0.5 + 0.4 * i / carries) for i in range(carries)]
    return loss, (rates, jnp.linspace(-1, 1, steps, dtype=jnp.float32))


def hodgkin_huxley(scan: Scan, compartments: int = 5, steps: int = 5000, dtype: Any = jnp.float64) -> Loss:
    """A neuron of a few coupled compartments (Hodgkin and Huxley, 1952), forward Euler."""

    def loss(conductances, current):
        sodium, potassium, leak = conductances

        def step(state, i):
            v, m, h, n = state
            a_m = 0.1 * (v + 40) / (1 - jnp.exp(-(v + 40) / 10) + 1e-7)
            b_m = 4 * jnp.exp(-(v + 65) / 18)
            a_h = 0.07 * jnp.exp(-(v + 65) / 20)
            b_h = 1 / (1 + jnp.exp(-(v + 35) / 10))
            a_n = 0.01 * (v + 55) / (1 - jnp.exp(-(v + 55) / 10) + 1e-7)
            b_n = 0.125 * jnp.exp(-(v + 65) / 80)
            ionic = sodium * m**3 * h * (v - 50) + potassium * n**4 * (v + 77) + leak * (v + 54.4)
            axial = 0.1 * (jnp.roll(v, 1) + jnp.roll(v, -1) - 2 * v)
            new = (
                v + 0.01 * (axial + i - ionic),
                m + 0.01 * (a_m * (1 - m) - b_m * m),
                h + 0.01 * (a_h * (1 - h) - b_h * h),
                n + 0.01 * (a_n * (1 - n) - b_n * n),
            )
            return new, new[0][0]

        full = lambda value: jnp.full(compartments, value, dtype)  # noqa: E731
        _, trace = scan(step, (full(-65.0), full(0.05), full(0.6), full(0.32)), current)
        return jnp.mean((trace + 65) ** 2)

    conductances = jnp.asarray([[120.0] * compartments, [36.0] * compartments, [0.3] * compartments], dtype)
    return loss, (conductances, jnp.full(steps, 10.0, dtype))


def matrix_powers(scan: Scan, width: int = 3, steps: int = 10_000, dtype: Any = jnp.float64) -> Loss:
    """A small matrix is multiplied by another in every step: a Kalman filter's covariance, a rigid body."""

    def loss(a, xs):
        def step(m, x):
            m = a @ m + x * jnp.eye(width, dtype=dtype)
            return m / (1 + jnp.sum(m * m)), m[0, 0]

        last, ys = scan(step, jnp.eye(width, dtype=dtype), xs)
        return jnp.sum(last) + jnp.sum(ys)

    return loss, (jnp.eye(width, dtype=dtype) * 0.9 + 0.01, jnp.linspace(-1, 1, steps, dtype=dtype))


def small_rnn(scan: Scan, width: int = 16, batch: int = 1, steps: int = 1000) -> Loss:
    """A recurrent network of few units."""

    def loss(w, xs):
        def step(h, x):
            h = jnp.tanh(h @ w + x)
            return h, h

        return jnp.sum(scan(step, jnp.zeros((batch, width)), xs)[1] ** 2)

    keys = jax.random.split(jax.random.key(0))
    w = 0.3 * jax.random.normal(keys[0], (width, width))
    return loss, (w, jax.random.normal(keys[1], (steps, batch, width)))


BODIES: dict[str, Callable[[Scan], Loss]] = {
    "60 scalar carries, 614 steps": scalar_carries,
    "Hodgkin-Huxley, 5 compartments, 5000 steps, float64": hodgkin_huxley,
    "3x3 matrix, 10,000 steps, float64": matrix_powers,
    "RNN, width 16, batch 1, 1000 steps": small_rnn,
}
