"""What decides whether a rewrite pays."""

import jax
import jax.numpy as jnp
import pytest

from lapwing.loops._costs import Costs, readable
from lapwing.loops._loop import loop_of


def loop(step, width=4, length=100, **options):
    jaxpr = jax.make_jaxpr(
        lambda h, w, xs: jax.lax.scan(lambda h, x: (step(h, x, w), None), h, xs, **options)
    )(jnp.ones((2, width)), jnp.ones((width, width)), jnp.ones((length, 2, width)))
    return loop_of(next(eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scan"))[0]


def plain(h, x, w):
    return jnp.tanh(h @ w + x)


def nested(h, x, w):
    return jax.lax.fori_loop(0, 3, lambda _, h: plain(h, x, w), h)


@pytest.mark.parametrize(
    ("platform", "made", "steps"),
    [
        ("cpu", loop(plain), 1),
        ("gpu", loop(plain), 4),
        ("gpu", loop(plain, length=3), 3),
        ("gpu", loop(plain, unroll=2), 2),
        ("gpu", loop(nested), 1),
    ],
)
def test_small_steps_are_unrolled_on_a_gpu_unless_the_user_says_how(platform, made, steps):
    assert Costs("auto", platform).unrolling(made) == steps


def product(made):
    return next(eqn for eqn in made.eqns if eqn.primitive.name == "dot_general")


def test_a_stack_that_would_not_fit_is_not_made():
    eqn = product(loop(plain))
    assert Costs("auto", "cpu").moves(eqn, 100)
    assert not Costs("auto", "cpu").moves(eqn, 10**9)
    assert not Costs("auto", "gpu").defers(eqn, 10**9)
    assert Costs("always", "cpu").moves(eqn, 10**9)


def test_products_are_merged_on_a_gpu_when_the_copy_of_the_weights_pays():
    eqn = product(loop(plain))
    assert not Costs("auto", "gpu").merges([eqn, eqn], 3)
    assert Costs("auto", "gpu").merges([eqn, eqn], 4)
    assert not Costs("auto", "cpu").merges([eqn, eqn], 4)
    assert Costs("always", "cpu").merges([eqn, eqn], 3)


def test_a_bias_alone_is_added_up_in_the_loop_on_a_cpu():
    out = product(loop(plain)).outvars[0]
    assert Costs("auto", "cpu").stacks(out, 100)
    assert not Costs("auto", "cpu").stacks(out, 10**6)
    assert Costs("auto", "gpu").stacks(out, 10**6)


def test_sizes_are_readable():
    assert [readable(n) for n in (12, 1500, 2.5e6, 4e12)] == ["12 B", "1.5 kB", "2.5 MB", "4e+03 GB"]
