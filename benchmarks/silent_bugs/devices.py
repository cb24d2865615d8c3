"""Copies of the parameters that should stay equal. The devices are an axis: `jax.vmap` with its name."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from lapwing.bench.doctor import bug
from lapwing.task import Task

from ._parts import apply, dense, line

DEVICES = 2
_CAUSE = r"drift|diverge|apart|out of sync|no longer equal|replica|copies"


def _replicated(optimizer: optax.GradientTransformation) -> Task:
    """A network with a copy of its parameters on each device."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        one = {"first": dense(k1, 5, 16), "norm": jnp.ones(16), "out": dense(k2, 16, 1)}
        return jax.tree.map(lambda leaf: jnp.stack([leaf] * DEVICES), one)

    def data(key: jax.Array, step: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.reshape(DEVICES, -1, *leaf.shape[1:]), line(key))

    def error(params: Any, batch: Any) -> jax.Array:
        h = jnp.tanh(apply(params["first"], batch["x"])) * params["norm"]
        return jnp.mean((apply(params["out"], h)[:, 0] - batch["y"]) ** 2)

    def loss(params: Any, batch: Any) -> Any:
        return jnp.mean(jax.vmap(error)(params, batch)), {}

    return Task(init=init, data=data, loss=loss, optimizer=optimizer, batch_axis=1)


def _mean_over_devices(updates: Any, state: Any, params: Any = None) -> Any:
    return jax.tree.map(lambda g: jnp.broadcast_to(g.mean(0, keepdims=True), g.shape), updates), state


SYNCHRONIZE = optax.GradientTransformation(lambda params: optax.EmptyState(), _mean_over_devices)


@bug("https://github.com/pytorch/pytorch/issues/104336", cause=_CAUSE)
def pytorch_104336(wrong: bool) -> Task:
    """The hooks that average the gradients over the devices are lost when the model is moved to the CPU and back: each
    device trains alone."""
    parts = [optax.adam(1e-2)] if wrong else [SYNCHRONIZE, optax.adam(1e-2)]
    return _replicated(optax.chain(*parts))


@bug("https://github.com/microsoft/DeepSpeed/pull/1801", cause=_CAUSE, held_out=True)
def deepspeed_1801(wrong: bool) -> Task:
    """Gradients are averaged over the devices, but clipped on the first only: the copies of the normalization drift
    apart (BLOOM-176B)."""

    def clip(updates: Any, state: Any, params: Any = None) -> Any:
        norm = optax.global_norm(jax.tree.map(lambda g: g[0], updates))
        scale = jnp.minimum(1.0, 0.1 / norm)
        scales = jnp.array([scale, 1.0]) if wrong else jnp.stack([scale, scale])
        return jax.tree.map(lambda g: jax.vmap(jnp.multiply)(scales, g), updates), state

    clipped = optax.GradientTransformation(lambda params: optax.EmptyState(), clip)
    return _replicated(optax.chain(SYNCHRONIZE, clipped, optax.sgd(1e-1)))
