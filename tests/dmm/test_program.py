"""A batch of machines computes for each what that machine computes alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing import dmm
from lapwing.dmm import MachineError

TEXT = "aab."


def squared(params, answers, weight):
    return jnp.sum((answers - 1) ** 2) + weight * jnp.sum(jnp.abs(params))


def machines() -> dict[str, dmm.Machine]:
    return {
        "recurrent": dmm.random_start(dmm.feedforward_student(layers=2, width=1), jax.random.key(0), 0.4),
        "fluid": dmm.random_start(dmm.superfluid_student(layers=3, width=1), jax.random.key(1), 0.4),
    }


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("recurrent", {}),
        ("recurrent", {"accumulator_gradient": "truncated", "norm_ties": "last", "governor": 1.0}),
        ("fluid", {}),
    ],
)
def test_answers_losses_and_gradients_are_those_of_each_machine(name, options):
    # 13 cycles: the weights' gradient is summed up several cycles at a time, and one is left over.
    program = dmm.compile(machines()[name], 13, text=TEXT, period=2, **options)
    starts = program.random_params(jax.random.key(2), 0.5, machines=3)
    weights = jnp.array([0.0, 0.1, 0.2])
    values, gradients = jax.jit(program.value_and_grad(squared))(starts, weights)
    answers = jax.jit(program.answers)(starts)

    @jax.jit
    def alone(params, weight):
        return jax.value_and_grad(lambda p: squared(p, program.answers(p), weight))(params)

    for i, (params, weight) in enumerate(zip(starts, weights, strict=True)):
        value, gradient = alone(params, weight)
        np.testing.assert_allclose(answers[i], jax.jit(program.answers)(params), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(values[i], value, rtol=1e-5)
        np.testing.assert_allclose(gradients[i], gradient, rtol=1e-4, atol=1e-5)


def test_a_batch_that_is_no_whole_number_of_blocks():
    program = dmm.compile(dmm.duplicate_detector(), 6, text=TEXT, period=1)
    starts = program.random_params(jax.random.key(0), 0.5, machines=70)
    step = jax.jit(program.value_and_grad(squared))
    values, gradients = step(starts, jnp.zeros(70))
    expected, slopes = step(starts[64:], jnp.zeros(6))
    np.testing.assert_allclose(values[64:], expected, rtol=1e-6)
    np.testing.assert_allclose(gradients[64:], slopes, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_losses_with_metrics():
    program = dmm.compile(dmm.duplicate_detector(), 6, text=TEXT, period=1)

    def loss(params, answers):
        error = jnp.sum(answers**2)
        return error, {"largest": jnp.max(answers)}

    starts = jnp.stack([program.start, 2 * program.start])
    (values, metrics), gradients = program.value_and_grad(loss, has_aux=True)(starts)
    assert (values.shape, metrics["largest"].shape, gradients.shape) == ((2,), (2,), (2, 11))


def test_a_batch_of_self_modifying_machines():
    wave = dmm.wave_machine()
    wave.neuron("output", dmm.output)
    wave.neuron("one", dmm.const_1)
    wave.link("output.dict-1", "one.const_1", 0.5)
    program = dmm.compile(wave, 4)
    both = jnp.stack([program.start, 3 * program.start])
    answers = program.answers(both)
    assert answers.any()
    np.testing.assert_allclose(answers, [program.answers(params) for params in both], rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda program: program.answers(jnp.zeros((2, 3))),
            r"11 parameters, .* with one row per machine, but got the shape \(2, 3\)",
        ),
        (
            lambda program: program.value_and_grad(squared)(program.start),
            r"a matrix with one row per machine, but got shape \(11,\)",
        ),
    ],
)
def test_errors_say_what_to_do(make, message):
    with pytest.raises(MachineError, match=message):
        make(dmm.compile(dmm.duplicate_detector(), 3, text="a"))
