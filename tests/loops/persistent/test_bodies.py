"""Every body of the tests of `scan`, and of its benchmark: a kernel has its numbers, or the reason is a sentence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import primitives as p

import lapwing as lw
from lapwing import jaxprs
from lapwing.bench.loop_bodies import FAMILIES, TABLE, Body
from lapwing.loops._costs import platform_is
from lapwing.loops._marks import mark_of
from lapwing.loops.persistent._axes import DoesNotFitError
from lapwing.loops.persistent._prepare import prepare
from lapwing.loops.persistent._shares import Shares
from lapwing.loops.persistent._simulate import simulate
from tests.loops.bodies import CASES, Case
from tests.loops.reference import arrays_of, leaves_close, loss_of
from tests.slow import some


def shares_of(stages) -> Shares:
    """Two groups, and at least two blocks in each."""
    rows, each = int(np.prod(stages.rows)), stages.units // stages.heads
    units = max(each // 2, 1)
    return Shares(2, -(-rows // 2), stages.heads, -(-each // units), units)


def by_blocks(fn, found: list):
    """The same function, each of its marked loops run by the blocks of a kernel that is only simulated, if it fits."""

    def rule(eqn, inputs):
        if eqn.primitive is not p.scan_p or mark_of(eqn.ctx) is None:
            return None
        loop, closed_over = jaxprs.loop_of(eqn)
        try:
            prepared = prepare(loop)
        except DoesNotFitError as error:
            found.append(str(error))
            return None
        stages = prepared.stages
        found.append(stages)
        values = [jnp.asarray(value) for value in [*closed_over, *inputs]]
        return prepared.run(lambda values: simulate(stages, shares_of(stages), values), values)

    def run(*args):
        with platform_is("gpu"):
            closed, shape = jax.make_jaxpr(fn, return_shape=True)(*args)
        values = [*closed.consts, *jax.tree.leaves(args)]
        out = jaxprs.interpret(closed.jaxpr, values, jaxprs.open_calls(rule))
        return jax.tree.unflatten(jax.tree.structure(shape), out)

    return run


def check_reasons(found: list) -> None:
    """Those of loops that do not fit are sentences, with a line where one is to blame."""
    for why in found:
        if isinstance(why, str):
            assert why
            assert "\n" not in why
            assert "unknown place" not in why


# What a kernel cannot hold; all other loops of these bodies, forward and backward, are kernels.
LEFT = {
    "weight_that_changes": ["a product of two values that change from step to step"] * 2,
    "convolution": ["conv_general_dilated is not elementwise, nor a product with a weight"] * 2,
    "counter_in_the_carry": ["dynamic_slice is not elementwise, nor a product with a weight"],
    "remat_inside": ["a product of two values that change from step to step"],
    "scan_inside": ["scan is not elementwise, nor a product with a weight"] * 2,
    "random_keys": ["random_split is not elementwise, nor a product with a weight"],
    "no_products": ["it has no product with a weight that stays the same"] * 2,
    "stopped_gradient": ["it has no product with a weight that stays the same"],
    "constant_and_passed_through_outputs": ["it carries or returns what belongs to no product"],
    "python_scalar_carry": ["it has no product with a weight that stays the same"] * 2,
    "embedding_lookup": ["dynamic_slice is not elementwise, nor a product with a weight"],
}
UNTOUCHED = {"custom_vjp_inside", "cond_inside", "one_step", "no_step"}
"""By `scan` itself: their loops run exactly as they came."""


@pytest.mark.parametrize(
    "case",
    some(
        [
            pytest.param(case, id=str(case), marks=pytest.mark.slow if at % 6 else ())
            for at, case in enumerate(CASES)
        ],
        0,
        24,
    ),
)
def test_a_body_of_the_tests_has_the_numbers_of_a_loop(case: Case):
    found = []
    got = jax.jit(by_blocks(jax.value_and_grad(loss_of(case, lw.scan)), found))(arrays_of(case))
    want = jax.jit(jax.value_and_grad(loss_of(case, jax.lax.scan)))(arrays_of(case))
    leaves_close(got, want, 2e-5, 1e-3)
    check_reasons(found)
    assert len(found) == (0 if case.name in UNTOUCHED else 2)
    assert [why.partition(" (")[0] for why in found if isinstance(why, str)] == LEFT.get(case.name, [])


def gradient_of(body: Body):
    def gradient(first, *rest):
        return jax.value_and_grad(lambda first: body.loss(lw.scan, first, *rest), allow_int=True)(first)

    return gradient


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [name if name == "recurrent" else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES],
)
def test_a_body_of_the_benchmark_fits_or_the_reason_is_a_sentence(family: str):
    kernels = 0
    for body in [each for each in TABLE.values() if each.family == family]:
        with jax.enable_x64(body.x64), platform_is("gpu"):
            jaxpr = jax.make_jaxpr(gradient_of(body))(*body.arguments()).jaxpr
            for eqn in jaxprs.equations(jaxpr):
                if eqn.primitive is p.scan_p and mark_of(eqn.ctx) is not None:
                    kernels += fits(eqn)
    assert kernels >= {"recurrent": 30}.get(family, 0)


def fits(eqn) -> bool:
    try:
        prepare(jaxprs.loop_of(eqn)[0])
    except DoesNotFitError as error:
        check_reasons([str(error)])
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_a_body_of_the_benchmark_has_the_numbers_of_a_loop(name: str):
    body, found = TABLE[name], []
    with jax.enable_x64(body.x64):
        arguments = body.arguments()
        got = jax.jit(by_blocks(gradient_of(body), found))(*arguments)
        if not any(not isinstance(each, str) for each in found):
            pytest.skip(f"none of its loops fits: {found}")
        plain = jax.value_and_grad(lambda first, *rest: body.loss(jax.lax.scan, first, *rest), allow_int=True)
        leaves_close(got, jax.jit(plain)(*arguments), 1e-3, 1e-3)
