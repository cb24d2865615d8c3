"""A neural ODE learns how a pendulum with friction swings, from pieces of its paths.

`lapwing train 12_neural_ode.py`: root mean square error 0.018 on paths five times as long, in 37 s on two busy cores.
The optimizer is an optax chain with a learning rate of its own, which is used as it is.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import lapwing as lw


@dataclass
class Config:
    steps: int = 1500
    steps_per_call: int = 10
    evaluate_every: int = 300
    width: int = 64  # units of a hidden layer
    peak: float = 5e-3  # largest learning rate


def solve(field, start, steps, dt=0.1):
    def rk4(y, _):  # One step of the classical Runge-Kutta method.
        k1 = field(y)
        k2 = field(y + dt / 2 * k1)
        k3 = field(y + dt / 2 * k2)
        k4 = field(y + dt * k3)
        return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4), y

    return lw.scan(rk4, start, length=steps)[1]  # As jax.lax.scan, with a faster gradient.


def pendulum(y):  # The truth: y is angle and speed.
    return jnp.stack([y[:, 1], -2 * jnp.sin(y[:, 0]) - 0.2 * y[:, 1]], axis=1)


def build(config: Config) -> lw.task.Task:
    def model(key):
        return eqx.nn.MLP(2, 2, config.width, depth=2, activation=jnp.tanh, key=key)

    def data(key, step, length=20):  # Paths from 64 starts, time first.
        return solve(pendulum, jax.random.uniform(key, (64, 2), minval=-1.5, maxval=1.5), length)

    def loss(model, paths):
        return jnp.mean((solve(jax.vmap(model), paths[0], len(paths)) - paths) ** 2)

    def evaluate(model, key):  # Five times as long as the paths of the training.
        return {"loss": loss(model, data(key, 0, length=100))}

    rate = optax.warmup_cosine_decay_schedule(0.0, config.peak, config.steps // 15, config.steps)
    chain = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    return lw.task.equinox(
        model, loss, data=data, evaluate=evaluate, optimizer=chain, batch_axis=1, time_axis=0
    )
