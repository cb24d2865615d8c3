"""The compiler computes what the interpreter does: values and gradients, on random machines.

Compiling takes most of the time, so every wiring that hypothesis draws is run with several sets of weights.
"""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from lapwing import dmm, trees

from .strategies import Case, cases, growing_cases, weight

# These programs run once: XLA need not polish them.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def interpreted(program: dmm.Program, params: jax.Array) -> jax.Array:
    answers = dmm.interpret(program.machine.with_values(program.to_tree(params)), program.cycles).answers
    rows = [jnp.stack([jnp.asarray(x, params.dtype) for x in answers[field]]) for field in program.fields]
    return jnp.stack(rows, axis=1)


def check(case: Case, weights: int = 2) -> None:
    with jax.enable_x64(True):
        program = dmm.compile(case.machine, case.cycles, **case.options)
        soft = np.array(program.soft)

        def compiled(params, errors):
            answers, back = jax.vjp(program.answers, params)
            return answers, back(errors)[0]

        shapes = (program.start, jnp.zeros((case.cycles, len(program.fields))))
        run = jax.jit(compiled).lower(*shapes).compile(compiler_options=QUICK)
        for seed in range(weights):
            draw = random.Random(seed)
            new = np.array([weight(draw) for _ in soft])
            params = jnp.where(soft & (seed > 0), new, program.start)
            direction = jnp.where(soft, np.array([weight(draw) for _ in soft]), 0.0)
            errors = jnp.array([[weight(draw) for _ in program.fields] for _ in range(case.cycles)])
            answers, gradient = run(params, errors)
            expected, slope = jax.jvp(lambda p: interpreted(program, p), (params,), (direction,))
            np.testing.assert_allclose(answers, expected, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(
                jnp.vdot(gradient, direction), jnp.vdot(errors, slope), rtol=1e-7, atol=1e-9
            )
            assert not np.any(np.where(soft, 0.0, gradient))


# 40 wirings with 5 sets of weights each: 200 machines. In every run of the tests one wiring, with 2 sets.
@pytest.mark.parametrize(
    "wirings", [pytest.param(1, id="few"), pytest.param(10, id="many", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("fluid", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("self_modifying", [pytest.param(False, marks=pytest.mark.slow), True])
def test_random_machines(fluid, self_modifying, wirings):
    @settings(max_examples=wirings, deadline=None, suppress_health_check=list(HealthCheck))
    @given(cases(fluid=fluid, self_modifying=self_modifying))
    def agree(case):
        check(case, weights=2 if wirings == 1 else 5)

    agree()


@pytest.mark.parametrize(
    "wirings", [pytest.param(1, id="few"), pytest.param(20, id="many", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(cases(self_modifying=False, nested=True), marks=pytest.mark.slow),
        cases(self_modifying=True, nested=True),
        pytest.param(growing_cases(), marks=pytest.mark.slow),
    ],
    ids=["nested", "nested and self-modifying", "growing"],
)
def test_random_machines_of_nested_trees_and_with_new_neurons(kind, wirings):
    @settings(max_examples=wirings, deadline=None, suppress_health_check=list(HealthCheck))
    @given(kind)
    def agree(case):
        check(case, weights=2)

    agree()


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["full", pytest.param("truncated", marks=pytest.mark.slow)])
def test_accumulators_that_only_add_up(gradient):
    """Their fixed links of weight 1 make them sums over time, which random wirings never are."""
    machine = dmm.random_start(dmm.feedforward_student(layers=2, width=1), jax.random.key(0), 0.4)
    machine.initial("accum-1-1.dict", {"a": 0.3, trees.NUMBER: 0.2}, hard=False)
    check(Case(machine, 5, {"text": "ab.", "period": 2, "accumulator_gradient": gradient}))
