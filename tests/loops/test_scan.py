"""`scan` equals `jax.lax.scan`: every loop of `bodies` under every transformation."""

import functools

import jax
import pytest

from lapwing.loops import accelerate, scan
from tests.loops.bodies import CASES, Case
from tests.loops.reference import (
    arrays_of,
    first_order,
    has_forward_mode,
    leaves_close,
    loss_of,
    reference,
    second_order,
)

# Outside jit, jax compiles every operation alone.
OUTSIDE = ("vanilla", "cond_inside", "random_keys")
SOME = [
    pytest.param(case, marks=[pytest.mark.slow] * (case.name not in OUTSIDE), id=case.name) for case in CASES
]


@pytest.mark.parametrize("case", SOME)
def test_values_are_equal_outside_jit(case: Case):
    leaves_close(reference(case, "outputs"), case.run(scan, **case.params), 1e-6)


# A program of many derivatives takes seconds to compile: a few loops, and the random programs, in every run.
def one_of(count: int) -> list:
    return [
        pytest.param(case, marks=[pytest.mark.slow] * (number % count != 0), id=case.name)
        for number, case in enumerate(CASES)
    ]


@pytest.mark.parametrize("case", one_of(24))
def test_derivatives(case: Case):
    """Values, gradients and batches of gradients three ways, in one compiled program."""
    plain, always = loss_of(case, jax.lax.scan), loss_of(case, functools.partial(scan, rewrite="always"))

    @jax.jit
    def everything(params):
        return {
            "auto": first_order(loss_of(case, scan), params),
            "always": first_order(always, params),
            "accelerated gradient": first_order(
                plain, params, lambda f: accelerate(jax.grad(f), rewrite="always")
            ),
        }

    for way, found in everything(arrays_of(case)).items():
        leaves_close(reference(case, "first"), found, 1e-5, what=way)


@pytest.mark.parametrize("case", [case for case in one_of(40) if has_forward_mode(case.values[0])])
def test_second_derivatives(case: Case):
    always = loss_of(case, functools.partial(scan, rewrite="always"))
    found = jax.jit(lambda params: second_order(always, params))(arrays_of(case))
    leaves_close(reference(case, "second"), found, 1e-4, atol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_derivatives_of_what_was_accelerated(case: Case):
    plain = accelerate(loss_of(case, jax.lax.scan))
    found = jax.jit(lambda params: first_order(plain, params))(arrays_of(case))
    leaves_close(reference(case, "first"), found, 1e-5)
