"""What a case gives by `jax.lax.scan`, compiled once and shared by all tests that compare with it."""

import functools
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tests.loops.bodies import Case

Function = Callable[[Any], Any]


def arrays_of(case: Case) -> Any:
    """The floating-point parameters of a case."""
    return eqx.filter(case.params, eqx.is_inexact_array)


def outputs(case: Case, scan: Callable[..., Any], params: Any) -> Any:
    """What a case returns, for other floating-point parameters."""
    rest = eqx.filter(case.params, eqx.is_inexact_array, inverse=True)
    return case.run(scan, **eqx.combine(params, rest))


def loss_of(case: Case, scan: Callable[..., Any]) -> Function:
    """The case as a scalar function of its floating-point parameters."""
    return lambda params: scalar(outputs(case, scan, params))


def scalar(tree: Any) -> Any:
    """A number that depends on every floating-point leaf, each weighted differently."""
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return sum(
        jnp.sum(jnp.sin(x + i) * (1 + jnp.arange(x.size).reshape(x.shape))) for i, x in enumerate(leaves)
    )


def first_order(f: Function, params: Any, gradient: Callable[[Function], Function] = jax.grad) -> Any:
    """Value, gradient, and a batch of gradients."""
    batch = jax.tree.map(lambda x: jnp.stack([x, 0.5 * x]), params)
    return f(params), gradient(f)(params), jax.vmap(gradient(f))(batch)


def second_order(f: Function, params: Any) -> Any:
    """Forward mode, forward over reverse, and reverse over reverse."""
    tangent = jax.tree.map(jnp.cos, params)
    forward = jax.jvp(f, (params,), (tangent,))
    over_reverse = jax.jvp(jax.grad(f), (params,), (tangent,))[1]
    twice = jax.grad(lambda p: sum(jnp.sum(jnp.sin(g)) for g in jax.tree.leaves(jax.grad(f)(p))))(params)
    return forward, over_reverse, twice


def by_python(step, init, xs=None, length=None, reverse=False, unroll=1):
    """A loop in plain Python, which jax differentiates operation by operation."""
    carry, ys = init, []
    for t in range(length or jax.tree.leaves(xs)[0].shape[0]):
        carry, y = step(carry, jax.tree.map(lambda x, t=t: x[t], xs))
        ys.append(y)
    return carry, jax.tree.map(lambda *y: jnp.stack(y), *ys)


@functools.cache
def reference(case: Case, what: Literal["outputs", "first", "second"]) -> Any:
    """The outputs, or derivatives, of a case by `jax.lax.scan`, in one compiled program."""
    plain = loss_of(case, jax.lax.scan)
    compute = {
        "outputs": lambda params: outputs(case, jax.lax.scan, params),
        "first": lambda params: first_order(plain, params),
        "second": lambda params: second_order(plain, params),
    }
    return jax.jit(compute[what])(arrays_of(case))


def has_forward_mode(case: Case) -> bool:
    """A custom vjp has none, in jax itself."""
    return case.name != "custom_vjp_inside"


def leaves_close(a: Any, b: Any, rtol: float, atol: float = 0.0, what: str = "") -> None:
    """Equal up to rounding, relative to the largest number of each leaf."""
    flat_a, tree_a = jax.tree.flatten(a)
    flat_b, tree_b = jax.tree.flatten(b)
    assert tree_a == tree_b
    for x, y in zip(flat_a, flat_b, strict=True):
        assert x.dtype == y.dtype
        assert x.shape == y.shape
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        if x.dtype == jax.dtypes.float0 or not x.size:
            continue
        x, y = np.asarray(x).astype(np.float64), np.asarray(y).astype(np.float64)
        np.testing.assert_allclose(x, y, rtol=0, atol=rtol * max(np.abs(x).max(), atol, 1e-30), err_msg=what)
