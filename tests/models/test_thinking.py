"""The derivative of thinking that keeps little is that of a scan which keeps everything."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.models import Thinker, ThinkerSize, _thinking

STEPS, SLOTS = 3, 6
SIZE = ThinkerSize(latents=2, steps=STEPS, heads=2, width=8, layers=2)
TOKENS = np.array([[3, 1, 4, 1, 0], [5, 2, 0, 0, 0]])


@functools.cache
def thinker(size: ThinkerSize = SIZE) -> Thinker:
    """Made when it is used, so that collecting the tests compiles nothing."""
    return jax.jit(lambda key: Thinker(size, vocabulary=7, inputs=5, outputs=4, key=key))(jax.random.key(0))


@jax.jit
def direction_like(model: Thinker) -> Thinker:
    return jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(leaf.size), leaf.shape), model)


def loss(model: Thinker, tokens: jax.Array = TOKENS[0]) -> jax.Array:
    return jnp.sum(jnp.sin(3 * model.think(model.embed(tokens), STEPS)))


DERIVATIVES = {
    "value": loss,
    "gradient": jax.grad(loss),
    "tangent": lambda model: jax.jvp(loss, (model,), (direction_like(model),)),
    "over a batch": lambda model: jax.vmap(jax.grad(loss), (None, 0))(model, TOKENS),
    "of a batch": jax.grad(lambda model: jnp.sum(jax.vmap(loss, (None, 0))(model, TOKENS))),
    "second": lambda model: jax.jvp(jax.grad(loss), (model,), (direction_like(model),))[1],
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name == "second" else name for name in DERIVATIVES],
)
def test_all_derivatives_are_those_of_a_scan(name: str, monkeypatch):
    ours = jax.jit(lambda model: DERIVATIVES[name](model))(thinker())
    monkeypatch.setattr(_thinking, "_think_and_keep_little", lambda *told: _thinking._forward(*told)[0])
    plain = jax.jit(lambda model: DERIVATIVES[name](model))(thinker())
    assert any(np.any(leaf) for leaf in jax.tree.leaves(plain))
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        rounding = 1e-6 * np.abs(other).max()  # Second derivatives are in the hundreds, and some cancel.
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 + rounding)


def test_the_way_of_a_gpu_gives_the_same_numbers(monkeypatch):
    of_a_batch = DERIVATIVES["of a batch"]
    here = jax.jit(lambda model: of_a_batch(model))(thinker())
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.delattr(_thinking, "_think_and_keep_little")  # This is for CPUs alone.
    there = jax.jit(lambda model: of_a_batch(model))(thinker())
    for one, other in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_the_memory_of_each_step_is_not_kept(monkeypatch):
    kept = f"[{STEPS},{SIZE.heads},{SLOTS},{SIZE.width // SIZE.heads}]"
    assert kept not in str(jax.make_jaxpr(jax.grad(loss))(thinker()))
    by_scan = functools.partial(_thinking._forward, memory=1)
    monkeypatch.setattr(_thinking, "_think_and_keep_little", lambda *told: by_scan(*told)[0])
    assert kept in str(jax.make_jaxpr(jax.grad(loss))(thinker()))


def test_with_fewer_slots_than_thoughts_each_step_has_its_own_memory():
    """The last memory no longer has what the first steps saw, so it may not be used for them."""
    model = thinker(dataclasses.replace(SIZE, slots=2))
    direction, gradient = direction_like(model), jax.jit(jax.grad(loss))(model)
    along = sum(jnp.vdot(*pair) for pair in zip(*map(jax.tree.leaves, (gradient, direction)), strict=True))

    @jax.jit
    def moved(by: float) -> jax.Array:
        return loss(jax.tree.map(lambda p, d: p + by * d, model, direction))

    np.testing.assert_allclose((moved(1e-3) - moved(-1e-3)) / 2e-3, along, rtol=2e-2)
