"""What decides whether a rewrite pays."""

import jax
import jax.numpy as jnp
import pytest

from lapwing.jaxprs import loop_of
from lapwing.loops._costs import Costs


def loop(step, width=4, length=100, batch=2, **options):
    jaxpr = jax.make_jaxpr(
        lambda h, w, xs: jax.lax.scan(lambda h, x: (step(h, x, w), None), h, xs, **options)
    )(jnp.ones((batch, width)), jnp.ones((width, width)), jnp.ones((length, batch, width)))
    return loop_of(next(eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scan"))[0]


def plain(h, x, w):
    return jnp.tanh(h @ w + x)


def nested(h, x, w):
    return jax.lax.fori_loop(0, 3, lambda _, h: plain(h, x, w), h)


@pytest.mark.parametrize(
    ("platform", "step", "options", "unrolled"),
    [
        ("cpu", plain, {}, 1),
        ("gpu", plain, {}, 4),
        ("gpu", plain, {"length": 3}, 3),
        ("gpu", plain, {"unroll": 2}, 2),
        ("gpu", nested, {}, 1),
    ],
)
def test_small_steps_are_unrolled_on_a_gpu_unless_the_user_says_how(platform, step, options, unrolled):
    assert Costs("auto", platform).unrolls(loop(step, **options)) == unrolled


def product(made):
    return next(eqn for eqn in made.eqns if eqn.primitive.name == "dot_general")


def test_a_stack_that_would_not_fit_is_not_made():
    eqn = product(loop(plain))
    _, weight = eqn.invars
    assert Costs("auto", "cpu").hoists(eqn, 100, weight=1)
    assert not Costs("auto", "cpu").hoists(eqn, 10**9, weight=1)
    assert not Costs("auto", "gpu").defers(eqn, 10**9, weight, rows=2, operand=32, stack=32)
    assert Costs("always", "cpu").hoists(eqn, 10**9, weight=1)


def test_without_a_gradient_nothing_is_stacked_on_a_cpu():
    eqn = product(loop(plain))
    decision = Costs("auto", "cpu", differentiated=False).hoists(eqn, 100, weight=1)
    assert not decision
    assert decision.against == "without a gradient it would only take more memory"
    assert Costs("auto", "gpu", differentiated=False).hoists(eqn, 100, weight=1)


def test_without_a_gradient_a_stack_takes_at_most_what_the_loop_reads_and_writes():
    read_once = loop(lambda h, x, w: jnp.tanh(h + jnp.sum(x @ w)), width=64, batch=2)
    eqn = product(read_once)
    costs = Costs("auto", "gpu").for_value(read_once)
    assert costs.hoists(eqn, 100, weight=1)
    # The bytes of x in each step are those of the result; ten more results would take more.
    assert not costs.hoists(eqn, 100, weight=1, along=[eqn] * 10)
    assert Costs("auto", "gpu").hoists(eqn, 100, weight=1, along=[eqn] * 10)


def test_the_gradient_of_few_numbers_is_added_up_in_the_loop_on_a_cpu():
    for width, deferred in ((4, False), (16, True)):
        eqn = product(loop(plain, width=width, batch=1))
        decision = Costs("auto", "cpu").defers(eqn, 100, eqn.invars[1], 1, 4 * width, 4 * width)
        assert bool(decision) is deferred


def test_less_is_kept_where_what_jax_keeps_is_more_than_the_cache_holds():
    costs = Costs("auto", "cpu")
    assert costs.keeps_less(ours=1000, theirs=2000, length=10_000)
    assert not costs.keeps_less(ours=1000, theirs=2000, length=10)
    assert not costs.keeps_less(ours=1999, theirs=2000, length=10_000)
    assert Costs("always", "cpu").keeps_less(ours=2000, theirs=2000, length=10)


def test_a_product_of_two_values_of_a_step_stays_on_a_cpu():
    eqn = product(loop(plain))
    assert "nothing is shared" in Costs("auto", "cpu").hoists(eqn, 100, weight=None).against


@pytest.mark.parametrize(("batch", "width", "pays"), [(1, 128, True), (16, 128, True), (512, 128, False)])
def test_a_weight_gradient_is_deferred_where_a_step_alone_is_slow(batch, width, pays):
    eqn = product(loop(plain, width=width, batch=batch))
    weight = eqn.invars[1]
    decision = Costs("auto", "cpu").defers(eqn, 100, weight, batch, 4 * batch * width, 4 * batch * width)
    assert bool(decision) is pays
    assert "µs a step" in decision.estimate


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


def test_a_decision_says_what_speaks_against_the_move_and_where():
    eqn = product(loop(plain))
    decision = Costs("auto", "cpu").merges([eqn, eqn], 3)
    assert not decision
    assert decision.against == "not merged: concatenating the weights does not pay in 3 steps"
    assert decision.role == "value"
    assert len(decision.sites) == 2
    assert decision.sites[0].endswith(f"test_costs.py:{plain.__code__.co_firstlineno + 1}:20")
    anyway = Costs("always", "cpu").merges([eqn, eqn], 3)
    assert anyway
    assert anyway.against == decision.against
