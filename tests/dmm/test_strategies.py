"""The random machines are worth testing with: they run, and all the features that they promise do occur."""

import math

import pytest
from hypothesis import find, given, settings

from lapwing import dmm, trees

from .strategies import cases


@settings(max_examples=40, deadline=None)
@given(cases())
def test_every_case_runs_and_stays_finite(case):
    trace = dmm.interpret(case.machine, case.cycles, **case.options)
    assert len(trace.cycles) == case.cycles
    assert all(math.isfinite(x) for answers in trace.answers.values() for x in answers)


@pytest.mark.parametrize(
    "feature",
    [
        lambda case: any(neuron.fluid for neuron in case.machine.neurons.values()),
        lambda case: case.machine.matrix_from is not None,
        lambda case: any(link.dead for link in case.machine.links()),
        lambda case: "wrap" in case.machine.neurons,
        lambda case: any(abs(x) > 0 for x in answers(case)),
        lambda case: moved(case),
    ],
    ids=["fluid", "self-modifying", "dead links", "deep values", "answers", "a changed matrix"],
)
def test_every_feature_occurs(feature):
    find(cases(), feature, settings=settings(max_examples=500, deadline=None, database=None))


def answers(case):
    found = dmm.interpret(case.machine, case.cycles, **case.options).answers
    return [x for numbers in found.values() for x in numbers]


def moved(case):
    cycles = dmm.interpret(case.machine, case.cycles, **case.options).cycles
    return bool(trees.diff(cycles[0].matrix, cycles[-1].matrix))
