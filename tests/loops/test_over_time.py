"""Equations for all steps at once do what they do step by step, whichever way they are run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.jaxprs import run_equations
from lapwing.loops import _over_time
from lapwing.loops._over_time import Stacked, bind_over_time
from tests.slow import some

STEPS = {
    "two stacks": lambda x, s, w, c: x * x + x,
    "a literal": lambda x, s, w, c: 2.0 * x - 1.0,
    "a stack of scalars": lambda x, s, w, c: s * s + 3.0,
    "scalars that meet an array": lambda x, s, w, c: jnp.where(s > 0, x, -x) * s,
    "a constant array": lambda x, s, w, c: x * w,
    "a constant scalar": lambda x, s, w, c: x * c + s * c,
    "a choice of constants": lambda x, s, w, c: jnp.where(s > 0, c, s),
    "bounds": lambda x, s, w, c: jnp.clip(x, c, 1.0) + jax.lax.clamp(-0.5, s, 0.5),
    "another dtype": lambda x, s, w, c: (x > 0).astype(jnp.int32) + jnp.int32(1),
}


@pytest.mark.parametrize("name", some(STEPS, 0, 1, 6, 8))
def test_all_steps_at_once(name):
    step = STEPS[name]
    rng = np.random.default_rng(0)
    xs, ss = jnp.asarray(rng.normal(size=(5, 3)), jnp.float32), jnp.asarray(rng.normal(size=5), jnp.float32)
    w, c = jnp.arange(3.0), jnp.float32(-0.7)
    jaxpr = jax.make_jaxpr(lambda *args: step(*args))(xs[0], ss[0], w, c).jaxpr
    env = dict(zip(jaxpr.invars, [Stacked(xs), Stacked(ss), w, c], strict=True))
    run_equations(jaxpr.eqns, env, _opened)
    expected = jnp.stack([step(x, s, w, c) for x, s in zip(xs, ss, strict=True)])
    np.testing.assert_array_equal(env[jaxpr.outvars[0]].value, expected)


def _opened(eqn, inputs):
    """`jnp.where` and `jnp.clip` are calls, which the loop's own passes have inlined before."""
    if eqn.primitive.name != "jit":
        return bind_over_time(eqn, inputs)
    inner = eqn.params["jaxpr"].jaxpr
    env = dict(zip(inner.invars, inputs, strict=True))
    run_equations(inner.eqns, env, _opened)
    return [env[atom] for atom in inner.outvars]


def test_elementwise_equations_are_not_mapped(monkeypatch):
    """One `jax.vmap` for each equation took half of the time to trace."""
    monkeypatch.setattr(_over_time.jax, "vmap", None)
    jaxpr = jax.make_jaxpr(lambda x: jnp.tanh(2.0 * x) * x)(jnp.ones(3)).jaxpr
    env = {jaxpr.invars[0]: Stacked(jnp.ones((5, 3)))}
    run_equations(jaxpr.eqns, env, bind_over_time)
    assert env[jaxpr.outvars[0]].value.shape == (5, 3)


@pytest.mark.parametrize(
    "product", some(["ij,jk->ik", "ji,jk->ik", "kj,ji->ki", "kj,ij->ki", "abj,jk->abk"], 0, 4)
)
@pytest.mark.parametrize("side", [0, 1])
def test_products_with_a_constant_on_either_side(product, side):
    rng = np.random.default_rng(0)
    operands, _ = product.split("->")
    shapes = [
        [dict(zip("abijk", (2, 3, 4, 5, 6), strict=True))[axis] for axis in each]
        for each in operands.split(",")
    ]
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    stack = rng.normal(size=(5, *shapes[side])).astype(np.float32)
    (eqn,) = jax.make_jaxpr(_dot(product))(a, b).jaxpr.eqns
    inputs = [Stacked(jnp.asarray(stack)), b] if side == 0 else [a, Stacked(jnp.asarray(stack))]
    (found,) = bind_over_time(eqn, inputs)
    expected = [_dot(product)(*((x, b) if side == 0 else (a, x))) for x in stack]
    np.testing.assert_allclose(found.value, np.stack(expected), rtol=1e-5, atol=1e-5)


def _dot(product: str):
    """`jnp.einsum` of two operands that share one axis, as a single `dot_general`."""
    left, right = product.split("->")[0].split(",")
    (shared,) = set(left) & set(right)
    axes = ((left.index(shared),), (right.index(shared),))
    return lambda a, b: jax.lax.dot_general(a, b, (axes, ((), ())))
