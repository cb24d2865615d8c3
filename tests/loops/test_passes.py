"""Each pass gives a loop that, undone, has the results of the loop it was given."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import primitives as p

import lapwing as lw
from lapwing.jaxprs import Loop, equations, trace
from lapwing.loops._accumulate import drop_accumulators
from lapwing.loops._bound import BoundLoop
from lapwing.loops._concatenated import split_concatenated
from lapwing.loops._costs import Costs
from lapwing.loops._hoist import hoist
from lapwing.loops._merge import merge
from lapwing.loops._passes import PASSES, rewrite
from tests.loops.bodies import normal
from tests.loops.bound import bound_loop, count
from tests.loops.reference import leaves_close
from tests.slow import some

B, T, N = 3, 5, 4
ALWAYS = Costs("always", "gpu")


def something_for_every_pass(u, v, into, out, h, fixed, total, x):
    """A step with siblings of two widths, an input projection, a read-out, an unchanged carry, a sum of products."""
    wide = h @ v
    h = jnp.tanh((h @ u) * wide[:, :N] + wide[:, N:] + x @ into + fixed)
    return h, fixed, total + x.T @ h, h @ out


@pytest.fixture(scope="module")
def bound() -> BoundLoop:
    widths = [N, 2 * N, N, N]
    consts = [normal(N, width, seed=seed) for seed, width in enumerate(widths)]
    init, xs = [normal(B, N), jnp.ones(N), jnp.ones((N, N))], [normal(T, B, N)]
    return bind_loop(something_for_every_pass, consts, init, xs)


def bind_loop(step, consts, init, xs) -> BoundLoop:
    jaxpr, _ = trace(step, [jax.typeof(x) for x in [*consts, *init, xs[0][0]]])
    loop = Loop(jaxpr, len(consts), len(init), length=T, reverse=False, unroll=1)
    return BoundLoop(loop, consts, init, xs)


def products(bound: BoundLoop) -> int:
    return sum(eqn.primitive is p.dot_general_p for eqn in equations(bound.loop.jaxpr))


# What splits the product of a concatenation is tested with the other forms.
CHANGING = [each for each in PASSES if each is not split_concatenated]


@pytest.mark.parametrize("each", CHANGING, ids=lambda each: each.__name__)
def test_a_pass_changes_the_loop_and_can_be_undone(each, bound):
    rewritten = each(bound, ALWAYS)
    before, after = bound.loop, rewritten.bound.loop
    assert (before.num_carry, before.unroll, len(before.xs), products(bound)) != (
        after.num_carry,
        after.unroll,
        len(after.xs),
        products(rewritten.bound),
    )
    leaves_close(bound.run(), rewritten.undo(rewritten.bound.run()), 1e-5)


def test_all_passes_together(bound):
    rewritten = rewrite(bound, ALWAYS)
    loop = rewritten.bound.loop
    assert (loop.num_carry, loop.unroll, products(rewritten.bound)) == (1, 4, 1)
    assert {(decision.move, decision.taken) for decision in rewritten.decisions} == {
        ("hoist", True),
        ("merge", True),
        ("defer", True),
    }
    leaves_close(bound.run(), rewritten.undo(rewritten.bound.run()), 1e-5)


def test_a_sum_that_a_step_reads_stays_in_the_loop():
    def step(h, total, x):
        h = jnp.tanh(h + x @ total)
        return h, total + x.T @ h

    bound = bind_loop(step, [], [normal(B, N), normal(N, N)], [normal(T, B, N)])
    rewritten = drop_accumulators(bound, ALWAYS)
    assert rewritten.bound.loop.num_carry == 2
    leaves_close(bound.run(), rewritten.undo(rewritten.bound.run()), 1e-5)


def test_a_while_loop_on_an_x_stays_in_its_step():
    """For all steps at once it would run until the last of them has ended."""

    def step(w, h, x):
        halved = jax.lax.while_loop(lambda x: jnp.max(x) > 1, lambda x: x / 2, x)
        return (jnp.tanh(h @ w + halved @ w),)

    bound = bind_loop(step, [normal(N, N)], [normal(B, N)], [normal(T, B, N)])
    left = hoist(bound, ALWAYS).bound
    assert products(left) == 2
    assert "while" in {eqn.primitive.name for eqn in left.loop.eqns}


def test_products_of_different_precision_are_not_merged():
    def step(u, v, h, x):
        return (jnp.tanh(jnp.dot(h, u, precision="highest") + jnp.dot(h, v) + x),)

    bound = bind_loop(step, [normal(N, N), normal(N, N, seed=1)], [normal(B, N)], [normal(T, B, N)])
    assert merge(bound, ALWAYS).bound is bound


def test_what_enters_the_loop_of_tangents_is_added_once():
    """A part of a tangent from outside may enter the loop for one equation and be added outside for another."""

    def run(scan, w, gain, h, xs):
        def step(h, x):
            outside = jnp.sin(gain * x)
            both = jnp.concatenate([h, outside]) * w
            return jnp.tanh(both[:N] - both[N:]), h + outside

        return scan(step, h, xs)

    arguments = normal(2 * N), normal(N), normal(N), normal(T, N)
    want, ours = (
        jax.jvp(functools.partial(run, scan), arguments, arguments)[1]
        for scan in (jax.lax.scan, functools.partial(lw.scan, rewrite="always"))
    )
    leaves_close(jax.tree.leaves(want), jax.tree.leaves(ours), 1e-5)


def test_decisions_against_a_move_come_with_their_reason(bound):
    rewritten = rewrite(bound, Costs("auto", "cpu"))
    assert products(rewritten.bound) == 3
    (merge,) = (decision for decision in rewritten.decisions if decision.move == "merge")
    assert not merge
    assert merge.against.startswith("not merged: on a CPU")


@pytest.mark.parametrize("platform", ["gpu", "cpu"])
@pytest.mark.parametrize("wide", some([True, False], 1), ids=["normalized", "and more is read"])
def test_the_norm_of_a_hoisted_product_leaves_the_loop_on_a_gpu(platform, wide):
    """Unless the loop reads other results of it too, so that more would be passed on than before."""
    w, u, h, xs = normal(4, 6), normal(6, 6, seed=1), jnp.zeros((2, 6)), normal(5, 2, 4, seed=2)

    def run(scan, w, u, h, xs):
        def step(h, x):
            y = x @ w
            normed = (y - y.mean(-1, keepdims=True)) / jnp.sqrt(jnp.mean(y**2, -1, keepdims=True) + 1e-3)
            return jnp.tanh(normed + h @ u + (0.0 if wide else jnp.exp(y) * h)), h

        return scan(step, h, xs)[1]

    bound = bound_loop(functools.partial(run, jax.lax.scan), w, u, h, xs)
    rewritten = hoist(bound, Costs("always", platform))
    left = count(rewritten.bound.loop, "reduce_sum")
    assert left == (0 if wide and platform == "gpu" else 2)
    leaves_close(bound.run(), rewritten.undo(rewritten.bound.run()), 1e-5)
