"""What an activation declares is true of the built-in ones, and is all that the rest of Lapwing looks at."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing import dmm, trees
from lapwing.dmm._activation import REGISTRY
from lapwing.report import machine_picture

from .copies import with_copies

BUILT_IN = [a for a in REGISTRY.values() if a.function.__module__.startswith("lapwing.dmm")]
values = st.dictionaries(st.sampled_from(["a", "b", trees.NUMBER]), st.floats(-3, 3, width=16), max_size=3)


def declaring(trait: str) -> list[dmm.Activation]:
    return [each for each in BUILT_IN if getattr(each, trait) not in (False, "none", "")]


def distance(a, b) -> float:
    return trees.max_norm(trees.add(a, trees.scale(-1.0, b)))


@pytest.mark.parametrize("activation", declaring("linearity"), ids=lambda a: a.name)
@settings(max_examples=20, deadline=None)
@given(data=st.data(), factor=st.floats(-3, 3, width=16))
def test_linearity(activation, data, factor):
    inputs = {field: data.draw(values) for field in activation.inputs}
    if activation.linearity == "multilinear":
        scaled = {**inputs, activation.inputs[0]: trees.scale(factor, inputs[activation.inputs[0]])}
    else:
        factor = abs(factor) if activation.linearity == "positive" else factor
        scaled = {field: trees.scale(factor, value) for field, value in inputs.items()}
    expected = abs(factor) if activation.linearity == "absolute" else factor
    assert distance(activation(scaled), trees.scale(expected, activation(inputs))) < 1e-6


@pytest.mark.parametrize("activation", declaring("antisymmetric"), ids=lambda a: a.name)
@given(first=values, second=values, both=values)
def test_antisymmetric(activation, first, second, both):
    (left, right), (true, false) = activation.inputs, activation.outputs
    outputs = activation({left: first, right: second})
    swapped = activation({left: trees.add(second, both), right: trees.add(first, both)})
    assert distance({true: outputs[false], false: outputs[true]}, swapped) < 1e-6


@pytest.mark.parametrize("activation", declaring("accumulator"), ids=lambda a: a.name)
@given(memory=values, change=values)
def test_accumulator(activation, memory, change):
    inputs = dict(zip(activation.inputs, (memory, change), strict=True))
    assert activation(inputs) == {activation.outputs[0]: trees.add(memory, change)}


STUDENT, TEACHER = dmm.feedforward_student(layers=2, width=1), dmm.duplicate_detector()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "gradient"),
    [
        pytest.param(STUDENT, "full", id="student, full"),
        pytest.param(TEACHER, "truncated", id="teacher, truncated", marks=pytest.mark.slow),
        pytest.param(STUDENT, "truncated", id="student, truncated", marks=pytest.mark.slow),
        pytest.param(TEACHER, "full", id="teacher, full", marks=pytest.mark.slow),
    ],
)
def test_a_copy_under_another_name_compiles_to_the_same_program(machine, gradient):
    """The same jaxprs of values, gradients and batches: it runs and trains the same."""

    def jaxprs(machine: dmm.Machine) -> list[str]:
        program = dmm.compile(machine, 12, text="ab.", governor=4.0, accumulator_gradient=gradient)
        batch = program.random_params(jax.random.key(0), 0.1, machines=2)
        found = [
            jax.make_jaxpr(jax.grad(program.loss))(program.start, jnp.zeros((12, 2))),
            jax.make_jaxpr(program.value_and_grad(lambda _, answers: answers.sum()))(batch),
        ]
        return [str(jaxpr) for jaxpr in found]

    assert jaxprs(with_copies(machine)) == jaxprs(machine)


def test_a_copy_in_a_machine_that_is_one_loop():
    """Watching takes the flat loop, where an accumulator is one sum of vectors."""
    texts = []
    for machine in (dmm.duplicate_detector(), with_copies(dmm.duplicate_detector())):
        program = dmm.compile(machine, 12, text="ab.", watch=["accum.dict"])
        texts.append(str(jax.make_jaxpr(program.watched)(program.start)))
    assert texts[0] == texts[1]


def test_a_copy_is_drawn_and_described_the_same(tmp_path):
    machine = dmm.readable_detector()
    copied = with_copies(machine)
    assert dmm.in_words(copied) == dmm.in_words(machine)
    assert dmm.listing(copied).replace("my_", "").split() == dmm.listing(machine).split()
    for name, each in (("a.png", machine), ("b.png", copied)):
        machine_picture(each, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            {"accumulator": True},
            "accumulator=True to have 2 inputs and 1 outputs, but 'odd' has 1 and 1; leave",
        ),
        ({"antisymmetric": True}, "antisymmetric=True to have 2 inputs and 2 outputs, but 'odd' has 1 and 1"),
    ],
)
def test_a_declaration_that_cannot_be_true_is_an_error(declared, message):
    with pytest.raises(dmm.MachineError, match=message):
        dmm.activation(name="odd", inputs=("x",), outputs=("y",), **declared)(lambda inputs: {})
