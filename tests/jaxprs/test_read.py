"""What is read from a jaxpr."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.jaxprs import (
    constants,
    dependencies,
    depends_on,
    file_and_line,
    flops,
    holds_products,
    inventory,
    loop_of,
    needed,
    part,
    reads,
    site,
)


def test_parts_of_a_program():
    jaxpr = jax.make_jaxpr(lambda x, y: (jnp.sin(x), jnp.cos(jnp.exp(y))))(1.0, 2.0).jaxpr
    x, y = jaxpr.invars
    sine, cosine = jaxpr.outvars
    assert [eqn.primitive.name for eqn in needed(jaxpr.eqns, [cosine])] == ["exp", "cos"]
    assert reads(jaxpr.eqns[-1:], [sine]) == [jaxpr.eqns[-1].invars[0], sine]
    assert depends_on(jaxpr.eqns, [x]) == {x, sine}
    assert dependencies(jaxpr) == [{x}, {y}]
    assert part(jaxpr, jaxpr.eqns, [y], [cosine]).invars == [y]


def test_constants_of_programs_inside_programs():
    table = np.arange(3.0, dtype=np.float32)

    def f(x):
        return jax.lax.cond(x > 0.5, lambda x: x + table, lambda x: x * jnp.ones(3) - 2.0, x)

    found = [np.asarray(each).tolist() for each in constants(jax.make_jaxpr(f)(1.0))]
    assert {0.5, 2.0} <= {each for each in found if isinstance(each, float)}
    assert [0.0, 1.0, 2.0] in found


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda: jnp.ones((2, 3)) @ jnp.ones((3, 5)), 2 * 2 * 3 * 5),
        (
            lambda: jax.lax.conv_general_dilated(jnp.ones((1, 2, 8)), jnp.ones((4, 2, 3)), (1,), "SAME"),
            2 * (8 * 4) * (2 * 3),
        ),
        (lambda: jnp.sin(jnp.ones(3)), 0),
    ],
)
def test_flops(function, count):
    jaxpr = jax.make_jaxpr(function)().jaxpr
    assert sum(map(flops, jaxpr.eqns)) == count
    assert any(map(holds_products, jaxpr.eqns)) == (count > 0)


def test_a_source_line_is_the_users():
    jaxpr = jax.make_jaxpr(lambda x: jax.lax.scan(lambda c, _: (c * 2, None), x, length=3)[0])(1.0).jaxpr
    line = test_a_source_line_is_the_users.__code__.co_firstlineno + 1
    assert file_and_line(jaxpr.eqns[-1]) == f"test_read.py:{line}"
    assert f"test_read.py:{line}:" in site(jaxpr.eqns[-1])


def test_a_loop_runs_as_its_scan():
    def f(w, h, xs):
        return jax.lax.scan(lambda h, x: (h * w + x, h), h, xs, reverse=True)

    args = jnp.float32(2.0), jnp.ones(3), jnp.arange(12.0).reshape(4, 3)
    (eqn,) = jax.make_jaxpr(f)(*args).jaxpr.eqns
    loop, closed_over = loop_of(eqn)
    assert loop_of(eqn)[0] is loop
    assert (len(loop.consts), len(loop.carry), len(loop.xs), len(loop.ys)) == (1, 1, 1, 1)
    assert (loop.length, loop.reverse) == (4, True)
    out = loop.run(*loop.split_inputs([*closed_over, *args]))
    for ours, theirs in zip(out, jax.tree.leaves(f(*args)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_an_inventory_tells_loops_roles_and_recomputation():
    def loss(w, xs):
        step = jax.checkpoint(lambda h, x: (jnp.tanh(h @ w + x), None))
        return jax.lax.scan(step, jnp.ones(2), xs)[0]

    def gradient(w, xs, g):
        return jax.vjp(loss, w, xs)[1](g)

    jaxpr = jax.make_jaxpr(gradient)(jnp.eye(2), jnp.ones((5, 2)), jnp.ones(2)).jaxpr
    found = inventory(jaxpr, jaxpr.invars[-1:])
    assert sorted((each.place, each.role, each.times) for each in found) == [
        ("backward loop", "computed again", 5),
        ("backward loop", "gradient of the operand", 5),
        ("backward loop", "gradient of the weight", 5),
        ("forward loop", "value", 5),
    ]
