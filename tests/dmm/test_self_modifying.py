"""Gradients through a network matrix that a machine edits while it runs, by a program of the same size for any run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing import dmm
from tests.slow import some

from .test_compile_agrees import interpreted

MACHINES = {
    "wave": lambda: dmm.learnable_wave(3, neurons=4),
    "growing": lambda: dmm.growing_machine(3, period=2),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "wave")) for name in MACHINES]
)
def test_gradients_are_those_of_the_interpreter(name):
    """Every soft number is in an edit of the matrix: without the gradient through the matrix all would be zero."""
    with jax.enable_x64(True):
        program = dmm.compile(MACHINES[name](), 10)
        targets = jax.random.normal(jax.random.key(1), (10, 2))
        compiled = jax.jit(jax.value_and_grad(program.loss))
        reference = jax.value_and_grad(lambda params: jnp.sum((interpreted(program, params) - targets) ** 2))
        for seed in range(2):
            noise = program.random_params(jax.random.key(seed), 0.3)
            params = jnp.where(program.soft, program.start + noise, program.start)
            (loss, gradient), (expected, slopes) = compiled(params, targets), reference(params)
            np.testing.assert_allclose(loss, expected, rtol=1e-9)
            np.testing.assert_allclose(gradient, np.where(program.soft, slopes, 0.0), rtol=1e-6, atol=1e-9)
            assert np.all(gradient[program.soft] != 0)


@pytest.mark.parametrize("name", some(MACHINES, 0))
def test_the_program_is_as_large_for_a_long_run_as_for_a_short_one(name):
    sizes = []
    for cycles in (10, 1000):
        program = dmm.compile(MACHINES[name](), cycles)
        lowered = jax.jit(jax.grad(program.loss)).lower(program.start, jnp.zeros((cycles, 2)))
        sizes.append(lowered.as_text().count("\n"))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(("period", "neurons"), [(1, 3), (4, 3)])
def test_a_wave_of_a_period_that_does_not_fit(period, neurons):
    with pytest.raises(dmm.MachineError, match="expected a period from 2 to the number of neurons, but got"):
        dmm.learnable_wave(period, neurons)
