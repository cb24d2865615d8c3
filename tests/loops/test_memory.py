"""Less memory for more computation: same numbers, and really less memory."""

import functools

import jax
import jax.numpy as jnp
import pytest

from lapwing.loops import scan
from lapwing.loops._memory import Sizes, plan_for
from tests.loops.bodies import CASES, leaves_close
from tests.loops.test_scan import loss

BY_NAME = {case.name: case for case in CASES}
SOME = [
    "gru",
    "lstm",
    "backwards_and_unrolled",
    "integers_and_booleans",
    "scan_inside",
    "length_only",
    "random_keys",
]


@pytest.mark.parametrize("memory", [1, 2, 4, "sqrt", "binomial"], ids=str)
@pytest.mark.parametrize("name", SOME)
def test_segments_change_nothing(name, memory):
    plain, params = loss(BY_NAME[name], jax.lax.scan)
    ours, _ = loss(BY_NAME[name], functools.partial(scan, memory=memory))
    want = jax.jit(jax.value_and_grad(plain))(params)
    leaves_close(want, jax.jit(jax.value_and_grad(ours))(params), 1e-5)


def gru_gradient(length: int, width: int, batch: int, **options):
    weights = [jnp.zeros((width, width))] * 3
    xs = jnp.zeros((length, batch, 3 * width))

    def last(weights, xs):
        u, v, w = weights

        def step(h, x):
            xr, xz, xn = jnp.split(x, 3, -1)
            r, z = jax.nn.sigmoid(xr + h @ u), jax.nn.sigmoid(xz + h @ v)
            return (1 - z) * h + z * jnp.tanh(xn + (r * h) @ w), None

        return jnp.sum(scan(step, jnp.zeros((batch, width)), xs, **options)[0])

    return jax.jit(jax.grad(last)).lower(weights, xs).compile()


def temporary_bytes(compiled) -> int:
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.optimized
def test_sqrt_takes_less_than_a_tenth():
    save = temporary_bytes(gru_gradient(4096, 32, 4))
    assert temporary_bytes(gru_gradient(4096, 32, 4, memory="sqrt")) < save / 10


@pytest.mark.optimized
def test_binomial_grows_with_the_logarithm():
    def last(w, length):
        return jnp.sum(
            scan(lambda h, _: (jnp.tanh(h @ w), None), jnp.ones(32), length=length, memory="binomial")[0]
        )

    w = jnp.eye(32)
    short, long = (
        temporary_bytes(jax.jit(jax.grad(lambda w, n=n: last(w, n))).lower(w).compile())
        for n in (1_000, 100_000)
    )
    assert long < 2 * short


@pytest.mark.optimized
def test_a_budget_is_kept():
    budget = 600_000
    assert temporary_bytes(gru_gradient(2048, 32, 4)) > 2 * budget
    assert temporary_bytes(gru_gradient(2048, 32, 4, memory=("budget", budget))) < 1.1 * budget


@pytest.mark.optimized
@pytest.mark.parametrize("budget", [3_000_000, 10_000_000, 30_000_000])
def test_a_budget_counts_what_is_computed_ahead_of_the_loop(budget):
    """The input projection of all steps of a segment is in memory too."""
    length, batch, width = 2048, 8, 32

    def last(weights, xs):
        into, w = weights

        def step(h, x):
            return jnp.tanh(x @ into + h @ w), None

        return jnp.sum(scan(step, jnp.zeros((batch, width)), xs, memory=("budget", budget))[0])

    weights = jnp.zeros((4, width)), jnp.zeros((width, width))
    compiled = jax.jit(jax.grad(last)).lower(weights, jnp.zeros((length, batch, 4))).compile()
    assert temporary_bytes(compiled) < 1.15 * budget


SIZES = Sizes(carry=10, step=100, stacked=50)


def test_the_fastest_plan_that_fits():
    assert plan_for(("budget", 100_000), 1000, SIZES) == ()
    (segment,) = plan_for(("budget", 99_999), 1000, SIZES)
    assert segment > 300
    (segment,) = plan_for(("budget", 6_000), 1000, SIZES)
    assert 1000 % segment == 0
    assert plan_for("sqrt", 1000, SIZES) == (8,)
    assert plan_for(7, 1000, SIZES) == (7,)
    assert plan_for(2000, 1000, SIZES) == ()


def test_a_budget_that_nothing_fits_says_how_much_is_needed():
    with pytest.raises(
        ValueError, match=r"this loop of 1000 steps needs at least \d+ bytes .* give that much"
    ):
        plan_for(("budget", 500), 1000, SIZES)


@pytest.mark.parametrize("wrong", ["all", 0, -3, True, 2.5, ("budget",), ("budget", 0), None])
def test_an_unknown_policy_says_what_is_allowed(wrong):
    with pytest.raises(ValueError, match=r"memory must be 'save', 'sqrt', 'binomial'.* not "):
        scan(lambda c, x: (c, x), 0.0, jnp.ones(3), memory=wrong)
