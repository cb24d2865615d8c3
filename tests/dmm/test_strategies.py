"""The random machines are worth testing with: they run, and what they promise occurs often enough."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings

from lapwing import dmm, trees

from .strategies import Case, cases


def features(case: Case) -> list[str]:
    trace = dmm.interpret(case.machine, case.cycles, **case.options)
    answers = [x for numbers in trace.answers.values() for x in numbers]
    assert all(math.isfinite(x) for x in answers)
    occurs = {
        "fluid": any(neuron.fluid for neuron in case.machine.neurons.values()),
        "self-modifying": case.machine.matrix_from is not None,
        "a matrix that changes": bool(trees.diff(trace.cycles[0].matrix, trace.cycles[-1].matrix)),
        "dead links": any(link.dead for link in case.machine.links()),
        "deep values": any("inside" in value for value in wrapped(trace)),
        "answers": any(abs(x) > 0 for x in answers),
    }
    return [name for name, yes in occurs.items() if yes]


def wrapped(trace: dmm.Trace) -> list[dict]:
    return trace.outputs("wrap.dict") if "wrap" in trace.machine.neurons else []


@pytest.mark.slow
def test_every_feature_occurs_often():
    seen: Counter[str] = Counter()

    @settings(max_examples=100, deadline=None, database=None, derandomize=True)
    @given(cases())
    def collect(case: Case):
        seen.update(features(case))

    collect()
    assert len(seen) == 6, seen
    assert min(seen.values()) >= 20, seen
    assert seen["answers"] >= 50, seen
