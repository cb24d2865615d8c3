"""The superfluid student in which the handcrafted detector fits, and plain neurons in place of fluid ones."""

import jax
import numpy as np
import pytest

from lapwing import dmm, trees
from lapwing.dmm._fluid import plain_weights


def fluid_neurons_in_a_row(machine: dmm.Machine) -> int:
    """The most fluid neurons that a character can pass on its way to an answer."""
    reads: dict[str, set[str]] = {}
    for link in machine.links():
        if link.to != link.source:
            reads.setdefault(link.to, set()).add(link.source)

    def depth(name: str) -> float:
        if name == "input":
            return 0
        own = machine.neurons[name].fluid and len(machine.neurons[name].functions) > 1
        return own + max(map(depth, reads.get(name, ())), default=-np.inf)

    return int(depth("output"))


def test_three_functions_in_a_row_fit_into_this_student_but_not_into_the_published_one():
    assert fluid_neurons_in_a_row(dmm.superfluid_student()) == 2
    assert fluid_neurons_in_a_row(dmm.fluid_student()) == 4


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_plain_neurons_answer_as_the_fluid_ones_whose_functions_they_have(seed):
    layers, width = 3, 2
    student = dmm.random_start(dmm.fluid_student(layers, width), jax.random.key(seed), 0.4)
    fluid = [name for name, neuron in student.neurons.items() if neuron.fluid]
    draw = np.random.default_rng(seed)
    names = student.neurons[fluid[0]].names
    functions = {name: names[i] for name, i in zip(fluid, draw.integers(4, size=len(fluid)), strict=True)}
    values = {
        path: leaf
        for path, leaf in trees.paths(student.values).items()
        if path[0] == "matrix" or path[1] not in functions or path[-1] == functions[path[1]]
    }
    plain = dmm.plain_student(layers, width).with_values(trees.from_paths(plain_weights(values, functions)))
    expected = dmm.interpret(student.with_values(trees.from_paths(values)), 14, text="ab.a").answers
    found = dmm.interpret(plain, 14, text="ab.a").answers
    assert any(abs(x) > 1e-3 for x in expected["dict-1"])
    for field, answers in expected.items():
        np.testing.assert_allclose(found[field], answers, rtol=1e-9, atol=1e-12)
