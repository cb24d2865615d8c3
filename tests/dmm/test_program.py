"""A batch of machines computes for each what that machine computes alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing import dmm
from lapwing.dmm import MachineError, _compile_batched
from tests.slow import some

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
        pytest.param("recurrent", {}, marks=pytest.mark.slow),
        ("recurrent", {"accumulator_gradient": "truncated", "norm_ties": "last", "governor": 1.0}),
        pytest.param("fluid", {}, marks=pytest.mark.slow),
    ],
)
def test_answers_losses_and_gradients_are_those_of_each_machine(name, options):
    # 13 cycles: the gradient of the weights is summed several cycles at a time, and one is left over.
    program = dmm.compile(machines()[name], 13, text=TEXT, period=2, **options)
    starts = program.random_params(jax.random.key(2), 0.5, machines=3)
    weights = jnp.array([0.0, 0.1, 0.2])

    def loss(params, answers, weight):
        return squared(params, answers, weight), {"answers": answers}

    @jax.jit
    def alone(params, weight):
        return jax.value_and_grad(lambda p: loss(p, program.answers(p), weight), has_aux=True)(params)

    batch = jax.jit(program.value_and_grad(loss, has_aux=True))(starts, weights)
    for i in range(3):
        (value, metrics), gradient = alone(starts[i], weights[i])
        (values, batch_metrics), gradients = batch
        np.testing.assert_allclose(batch_metrics["answers"][i], metrics["answers"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(values[i], value, rtol=1e-5)
        np.testing.assert_allclose(gradients[i], gradient, rtol=1e-4, atol=1e-5)


def recurrent_machine() -> dmm.Machine:
    """An accumulator of characters, a norm that reads itself, a dot and a comparison, each in a loop."""
    machine = dmm.duplicate_detector()
    machine.link("accum.dict-2", "accum.dict", 0.3)
    machine.link("norm.dict", "norm.norm", -0.7)
    machine.link("compare.dict-2", "compare.false", 0.4)
    machine.link("compare.dict-1", "dot.dot", 0.2)
    machine.link("dot.dict-2", "compare.true", 0.5)
    machine.link("dot.dict-1", "norm.norm", 0.3)
    return machine


STYLES = {
    "several cycles": {"cycles": 4, "weights": "sum"},
    "kernels": {"weights": "product", "kernels": "interpreted"},
}


@pytest.mark.parametrize("name", some(STYLES, 1))
def test_the_styles_of_a_gpu_compute_what_that_of_a_cpu_computes(name, monkeypatch):
    program = dmm.compile(recurrent_machine(), 14, text=TEXT, period=2, governor=2.0, engine="xla")
    starts = program.random_params(jax.random.key(2), 1.0, machines=3)
    weights = jnp.array([0.0, 0.1, 0.2])
    expected, slopes = jax.jit(program.value_and_grad(squared))(starts, weights)
    style = _compile_batched.GPU._replace(**STYLES[name])
    monkeypatch.setattr(_compile_batched, "CPU", style)
    step = jax.jit(program.value_and_grad(squared))
    assert ("pallas_call" in str(step.trace(starts, weights).jaxpr)) == ("kernels" in STYLES[name])
    values, gradients = step(starts, weights)
    assert np.all(np.abs(slopes).max(axis=1) > 0.5)
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    np.testing.assert_allclose(gradients, slopes, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("texts", some([None, ["aab.", "b.."]], 1))
def test_a_matrix_of_parameters_adds_an_axis_of_machines(texts):
    given = {"text": TEXT} if texts is None else {"texts": texts}
    program = dmm.compile(dmm.duplicate_detector(), 12, period=2, **given)
    both = jnp.stack([program.start, 0.5 * program.start])
    run = jax.jit(lambda params, targets: (program.answers(params), program.loss(params, targets, skip=1)))
    targets = jnp.ones((*([] if texts is None else [2]), 12, 2))
    answers, losses = run(both, targets)
    for i in range(2):
        expected, loss = run(both[i], targets)
        np.testing.assert_allclose(answers[i], expected, rtol=1e-6)
        np.testing.assert_allclose(losses[i], loss, rtol=1e-6)


@pytest.mark.slow
def test_a_batch_that_is_no_whole_number_of_blocks():
    program = dmm.compile(dmm.duplicate_detector(), 6, text=TEXT, period=1)
    starts = program.random_params(jax.random.key(0), 0.5, machines=70)
    step = jax.jit(program.value_and_grad(squared))
    values, gradients = step(starts, jnp.zeros(70))
    expected, slopes = step(starts[64:], jnp.zeros(6))
    np.testing.assert_allclose(values[64:], expected, rtol=1e-6)
    np.testing.assert_allclose(gradients[64:], slopes, rtol=1e-5, atol=1e-6)


def test_a_batch_of_self_modifying_machines():
    wave = dmm.wave_machine()
    wave.neuron("output", dmm.output)
    wave.neuron("one", dmm.const_1)
    wave.link("output.dict-1", "one.const_1", 0.5)
    program = dmm.compile(wave, 4)
    both = jnp.stack([program.start, 3 * program.start])
    run = jax.jit(program.answers)
    answers = run(both)
    assert answers.any()
    np.testing.assert_allclose(answers, [run(params) for params in both], rtol=1e-6)


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
