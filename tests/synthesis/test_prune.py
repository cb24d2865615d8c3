"""Pruning by threshold."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing import dmm, trees
from lapwing.synthesis import prune

from ..dmm.strategies import cases


@settings(max_examples=60, deadline=None)
@given(cases(), st.floats(0, 1))
def test_exactly_the_weak_soft_leaves_go(case, below):
    machine = case.machine
    pruned = prune(machine, below)
    before, after = trees.paths(machine.values), trees.paths(pruned.values)
    assert after == {path: x for path, x in before.items() if path in machine.hard or abs(x) >= below}
    assert pruned.hard == machine.hard
    assert trees.paths(prune(pruned, below).values) == after
    assert set(pruned.neurons) == set(machine.neurons)


def test_a_pruned_machine_runs():
    pruned = prune(dmm.readable_detector(), 10.0)
    assert [link.hard for link in pruned.links()] == [True] * 3
    assert dmm.interpret(pruned, 20, text="ab").answers["dict-1"] == [0.0] * 20


@pytest.mark.parametrize("below", [-0.1, float("nan")])
def test_a_limit_that_is_no_size(below):
    with pytest.raises(dmm.MachineError, match="below should be 0 or more, since it is compared with"):
        prune(dmm.readable_detector(), below)
