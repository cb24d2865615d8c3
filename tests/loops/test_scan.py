"""`scan` equals `jax.lax.scan`: every loop of `bodies` under every transformation."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from lapwing.loops import accelerate, scan
from tests.loops.bodies import CASES, Case, leaves_close

# A custom vjp has no forward mode, in jax itself.
FORWARD = [case for case in CASES if case.name != "custom_vjp_inside"]

always = functools.partial(scan, rewrite="always")


def scalar(tree):
    """A number that depends on every floating-point leaf, each weighted differently."""
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return sum(
        jnp.sum(jnp.sin(x + i) * (1 + jnp.arange(x.size).reshape(x.shape))) for i, x in enumerate(leaves)
    )


def loss(case: Case, how):
    """The case as a scalar function of its floating-point parameters, and these."""
    arrays, rest = eqx.partition(case.params, eqx.is_inexact_array)
    return (lambda params: scalar(case.run(how, **eqx.combine(params, rest)))), arrays


def by_python(step, init, xs=None, length=None, reverse=False, unroll=1):
    """A loop in plain Python, which jax differentiates operation by operation."""
    carry, ys = init, []
    for t in range(length or jax.tree.leaves(xs)[0].shape[0]):
        carry, y = step(carry, jax.tree.map(lambda x, t=t: x[t], xs))
        ys.append(y)
    return carry, jax.tree.map(lambda *y: jnp.stack(y), *ys)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_are_equal_outside_jit(case):
    want = case.run(jax.lax.scan, **case.params)
    leaves_close(want, case.run(scan, **case.params), 1e-6)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients(case):
    """Gradient, a batch of gradients, `accelerate` before and after the gradient, in one compiled call each."""

    def everything(f, gradient=jax.grad):
        def run(params):
            batch = jax.tree.map(lambda x: jnp.stack([x, 0.5 * x]), params)
            return f(params), gradient(f)(params), jax.vmap(gradient(f))(batch)

        return jax.jit(run)(params)

    plain, params = loss(case, jax.lax.scan)
    want = everything(plain)
    leaves_close(want, everything(loss(case, scan)[0]), 1e-5)
    leaves_close(want, everything(loss(case, always)[0]), 1e-5)
    leaves_close(want, everything(accelerate(plain)), 1e-5)
    leaves_close(want, everything(plain, lambda f: accelerate(jax.grad(f), rewrite="always")), 1e-5)


@pytest.mark.parametrize("case", FORWARD, ids=str)
def test_forward_mode_and_second_derivatives(case):
    # jax.lax.scan itself forgets a custom jvp at the second derivative; a plain loop does not.
    plain, params = loss(case, by_python if case.name == "custom_jvp_inside" else jax.lax.scan)
    tangent = jax.tree.map(jnp.cos, params)

    def everything(f):
        def run(params):
            forward = jax.jvp(f, (params,), (tangent,))
            over_reverse = jax.jvp(jax.grad(f), (params,), (tangent,))[1]
            twice = jax.grad(lambda p: sum(jnp.sum(jnp.sin(g)) for g in jax.tree.leaves(jax.grad(f)(p))))(
                params
            )
            return forward, over_reverse, twice

        return jax.jit(run)(params)

    leaves_close(everything(plain), everything(loss(case, always)[0]), 1e-4, atol=1e-2)
