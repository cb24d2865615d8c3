"""What the compiled loops contain: structure is tested, not only time."""

import functools
import re

import jax
import jax.numpy as jnp
import pytest

import lapwing as lw
from lapwing.jaxprs import equations, loop_of, shape
from lapwing.loops._costs import Costs
from lapwing.loops._defer import derivative
from tests.slow import some

pytestmark = pytest.mark.optimized

B, T, N = 6, 8, 16


def gru_loss(scan, params, xs):
    def step(h, x):
        xr, xz, xn = jnp.split(x @ params["in"], 3, -1)
        r, z = jax.nn.sigmoid(xr + h @ params["u"]), jax.nn.sigmoid(xz + h @ params["v"])
        h = (1 - z) * h + z * jnp.tanh(xn + (r * h) @ params["w"] + params["b"])
        return h, h

    return jnp.sum(scan(step, jnp.zeros((B, N)), xs)[1] ** 2)


def products_in_loops(scan) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Shapes of the results of all products in the compiled program: inside its loops, and outside."""
    params = {k: jnp.ones((N, N)) for k in "uvw"} | {"in": jnp.ones((5, 3 * N)), "b": jnp.ones(N)}
    gradient = jax.jit(jax.grad(lambda params, xs: gru_loss(scan, params, xs)))
    text = gradient.lower(params, jnp.ones((T, B, 5))).compile().as_text()
    bodies = set(re.findall(r"body=%?([\w.\-]+)", text))
    inside, outside = [], []
    for name, code in re.findall(r"^(?:ENTRY )?%?([\w.\-]+) \(.*?\) -> .*?\{\n(.*?)^\}", text, re.S | re.M):
        shapes = re.findall(r"= f32\[([\d,]*)\]\S* dot\(", code)
        target = inside if _reached_from(text, bodies, name) else outside
        target += [tuple(int(n) for n in shape.split(",") if n) for shape in shapes]
    return inside, outside


def _reached_from(text: str, bodies: set[str], name: str) -> bool:
    """Whether computation `name` is a loop body, or called by one."""
    callers = {
        caller
        for caller, code in re.findall(
            r"^(?:ENTRY )?%?([\w.\-]+) \(.*?\) -> .*?\{\n(.*?)^\}", text, re.S | re.M
        )
        if re.search(rf"(?:calls|to_apply)=%?{re.escape(name)}\b", code)
    }
    return name in bodies or any(_reached_from(text, bodies, caller) for caller in callers)


@pytest.mark.parametrize(("rewrite", "products"), some([("auto", 6), ("always", 4)], 1))
def test_no_weight_gradient_and_no_input_projection_stays_in_a_loop(rewrite, products):
    inside, outside = products_in_loops(functools.partial(lw.scan, rewrite=rewrite))
    assert inside
    assert (N, N) not in inside
    assert (N, 2 * N) not in inside
    assert (2 * N, N) not in inside
    assert (B, 3 * N) not in inside
    # Forward h@U, h@V and (r·h)@W, backward the same transposed; merged, the first two are one.
    assert len(inside) == products
    assert outside


def test_the_plain_scan_has_them_there():
    """So that the test above would see them."""
    inside, _ = products_in_loops(jax.lax.scan)
    assert (N, N) in inside
    assert (B, 3 * N) in inside


def test_only_four_values_of_a_gru_step_are_kept():
    params = {k: jnp.ones((N, N)) for k in "uvw"} | {"in": jnp.ones((5, 3 * N)), "b": jnp.ones(N)}
    gradient = jax.make_jaxpr(jax.grad(lambda p: gru_loss(lw.scan, p, jnp.ones((T, B, 5)))))(params)
    scans = [eqn for eqn in equations(gradient.jaxpr) if eqn.primitive.name == "scan"]
    (forward,) = (eqn for eqn in scans if not eqn.params["reverse"])
    # carry and output; then h, r, z and the candidate
    assert len(forward.outvars) == 2 + 4


def test_two_vectors_enter_the_loop_of_tangents_and_not_their_outer_product():
    def fast_weights(w, memory, xs):
        def step(memory, x):
            return 0.9 * memory + jnp.tanh(x @ w)[:, None] * x, None

        return jax.lax.scan(step, memory, xs)[0]

    jaxpr = jax.make_jaxpr(fast_weights)(jnp.ones((N, N)), jnp.ones((N, N)), jnp.ones((T, N)))
    (loop,) = (loop_of(eqn)[0] for eqn in jaxpr.eqns if eqn.primitive.name == "scan")
    planned = derivative(loop, (True, True, False), Costs("always", "cpu"))
    assert [shape(tap) for tap in planned.parts.taps] == [(N, 1)]


def test_nothing_expensive_is_computed_again():
    """Not even from what is there anyway, as an x is."""

    def loss(h, xs):
        ours = functools.partial(lw.scan, rewrite="always")
        return jnp.sum(ours(lambda h, x: (h * jnp.tanh(x) + x, None), h, xs)[0])

    gradient = equations(jax.make_jaxpr(jax.grad(loss))(jnp.ones(N), jnp.ones((T, N))).jaxpr)
    assert [eqn.primitive.name for eqn in gradient].count("tanh") == 1
