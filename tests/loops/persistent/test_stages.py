"""Steps as stages, and what a kernel does with them, simulated: the numbers of `jax.lax.scan`."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import primitives as p

import lapwing as lw
from lapwing import jaxprs
from lapwing.loops.persistent._axes import DoesNotFitError
from lapwing.loops.persistent._prepare import prepare
from lapwing.loops.persistent._shares import Shares
from lapwing.loops.persistent._simulate import simulate
from lapwing.loops.persistent._stages import Stages
from tests.loops.persistent.cells import CELLS, B, Cell, D
from tests.slow import some

scan = functools.partial(lw.scan, rewrite="always")


def simulated(
    fn: Callable[..., Any], share: Callable[[Stages], Shares], found: list[Stages]
) -> Callable[..., Any]:
    """The same function with each of its loops run by the blocks of a kernel that is only simulated."""

    def rule(eqn, inputs):
        if eqn.primitive is not p.scan_p:
            return None
        loop, closed_over = jaxprs.loop_of(eqn)
        values = [*closed_over, *inputs]
        prepared = prepare(loop)
        found.append(prepared.stages)
        return prepared.run(lambda values: simulate(prepared.stages, share(prepared.stages), values), values)

    def run(*args):
        closed = jax.make_jaxpr(fn)(*args)
        out = jaxprs.interpret(
            closed.jaxpr, [*closed.consts, *jax.tree.leaves(args)], jaxprs.open_calls(rule)
        )
        return jax.tree.unflatten(jax.tree.structure(jax.eval_shape(fn, *args)), out)

    return run


def shared(groups: int, units: int, split: int = 1) -> Callable[[Stages], Shares]:
    def share(stages: Stages) -> Shares:
        rows, each = int(np.prod(stages.rows)), stages.units // stages.heads
        blocks = -(-each // (units * split)) * split
        return Shares(groups, -(-rows // groups), stages.heads, blocks, units, split)

    return share


QUICK = (
    "gru",
    "our_own",
    "mapped_twice",
)


def each_or_slow(cell: Cell) -> Any:
    marks = () if cell.name in QUICK else pytest.mark.slow
    return pytest.param(cell, id=cell.name, marks=marks)


# Of 24 units, 16 and 8: the last block has units that do not exist. Of six rows, four and two.
@pytest.mark.parametrize(("groups", "units", "split"), some([(2, 16, 1), (1, 8, 2)], 1))
@pytest.mark.parametrize("cell", [each_or_slow(cell) for cell in CELLS])
def test_blocks_compute_the_gradient_of_any_cell(cell: Cell, groups: int, units: int, split: int):
    weights, found = cell.weights(), []
    loss = lambda weights: cell.loss(scan, **weights)  # noqa: E731
    want = jax.value_and_grad(lambda weights: cell.loss(jax.lax.scan, **weights))(weights)
    got = jax.jit(simulated(jax.value_and_grad(loss), shared(groups, units, split), found))(weights)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
    assert [stages.loop.reverse for stages in found] == [cell.name == "mapped", cell.name != "mapped"]
    assert found[0].exchanges == cell.exchanges


def test_a_number_that_all_rows_share_is_not_an_output_of_a_kernel():
    def run(w, xs):
        def step(carry, x):
            h, count = carry
            h = jnp.tanh(h @ w + x)
            return (h, count + 1.0), (h, count)

        return scan(step, (jnp.zeros((B, D)), 0.0), xs)

    closed = jax.make_jaxpr(run)(jnp.ones((D, D)), jnp.ones((4, B, D)))
    (eqn,) = [eqn for eqn in jaxprs.equations(closed.jaxpr) if eqn.primitive is p.scan_p]
    with pytest.raises(DoesNotFitError, match="one number for all rows and units in every step"):
        prepare(jaxprs.loop_of(eqn)[0])
