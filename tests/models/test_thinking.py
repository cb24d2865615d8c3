"""The derivative of thinking that keeps only the last cache is that of a scan which keeps everything."""

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
def model_of(size: ThinkerSize = SIZE) -> Thinker:
    return jax.jit(lambda key: Thinker(size, vocabulary=7, inputs=5, outputs=4, key=key))(jax.random.key(0))


@functools.cache
def direction(size: ThinkerSize = SIZE) -> Thinker:
    random = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: random.normal(size=leaf.shape).astype(np.float32), model_of(size))


def loss(model: Thinker, tokens=TOKENS[0]) -> jax.Array:
    return jnp.sum(jnp.sin(3 * model.think(model.embed(jnp.asarray(tokens)), STEPS)))


DERIVATIVES = {
    "value and tangent": lambda model: jax.jvp(loss, (model,), (direction(),)),
    "of each of a batch": lambda model: jax.vmap(jax.grad(loss), (None, 0))(model, TOKENS),
    "of a batch": jax.grad(lambda model: jnp.sum(jax.vmap(loss, (None, 0))(model, TOKENS))),
    "second": lambda model: jax.jvp(jax.grad(loss), (model,), (direction(),))[1],
}


def compiled(name: str):
    """The derivative by a program of its own: what is patched changes it."""
    return jax.jit(lambda model: DERIVATIVES[name](model))(model_of())


@functools.cache
def ours(name: str):
    return compiled(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", DERIVATIVES)
def test_all_derivatives_are_those_of_a_scan(name: str, monkeypatch):
    found = ours(name)
    monkeypatch.setattr(_thinking, "_think_from_last_cache", lambda *args: _thinking._forward(*args)[0])
    plain = compiled(name)
    assert any(np.any(leaf) for leaf in jax.tree.leaves(plain))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(plain), strict=True):
        rounding = 1e-6 * np.abs(other).max()  # Second derivatives are in the hundreds, and some cancel.
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 + rounding)


@pytest.mark.slow
def test_the_way_of_a_gpu_gives_the_same_numbers(monkeypatch):
    here = ours("of a batch")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.delattr(_thinking, "_think_from_last_cache")  # This is for CPUs alone.
    there = compiled("of a batch")
    for one, other in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_cache_of_each_step_is_not_kept(monkeypatch):
    kept = f"[{STEPS},{SIZE.heads},{SLOTS},{SIZE.width // SIZE.heads}]"
    assert kept not in str(jax.make_jaxpr(jax.grad(loss))(model_of()))
    by_scan = functools.partial(_thinking._forward, memory=1)
    monkeypatch.setattr(_thinking, "_think_from_last_cache", lambda *args: by_scan(*args)[0])
    assert kept in str(jax.make_jaxpr(jax.grad(loss))(model_of()))


@pytest.mark.slow
def test_with_fewer_slots_than_thoughts_each_step_has_its_own_cache():
    """The last cache no longer has what the first steps saw, so it cannot be used for them."""
    size = dataclasses.replace(SIZE, slots=2)
    model, towards = model_of(size), direction(size)

    @jax.jit
    def slope(by: float) -> tuple[jax.Array, jax.Array]:
        moved = jax.tree.map(lambda p, d: p + by * d, model, towards)
        value, gradient = jax.value_and_grad(loss)(moved)
        pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(towards), strict=True)
        return value, sum(jnp.vdot(*pair) for pair in pairs)

    difference = slope(3e-4)[0] - slope(-3e-4)[0]
    np.testing.assert_allclose(difference / 6e-4, slope(0.0)[1], rtol=2e-2)
