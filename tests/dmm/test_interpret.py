"""The interpreter: the two strokes, the trace, self-modification, gradients."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings

from lapwing import dmm, trees
from lapwing.dmm import Machine

from .strategies import cases


def counter() -> Machine:
    m = Machine()
    m.neuron("timer", dmm.timer)
    m.neuron("output", dmm.output)
    m.link("timer.timer", "timer.timer", 1.0)
    m.link("output.dict-1", "timer.timer", 2.0)
    return m


def test_the_answer_is_what_stands_at_the_output_after_the_down_stroke():
    assert dmm.interpret(counter(), 4).answers == {"dict-1": [0.0, 2.0, 4.0, 6.0], "dict-2": [0.0] * 4}


@pytest.mark.parametrize("run", [dmm.interpret, dmm.compile])
def test_the_name_of_a_machine_is_none(run):
    with pytest.raises(
        dmm.MachineError, match=r"but got 'parity'; load .* with dmm.Machine.load\('parity'\)"
    ):
        run("parity", 4, text="01")


def test_initial_outputs_are_read_in_the_first_cycle():
    m = counter()
    m.initial("timer.timer", 5.0)
    assert dmm.interpret(m, 3).answers["dict-1"] == [10.0, 12.0, 14.0]


def test_the_trace_has_every_cycle():
    trace = dmm.interpret(counter(), 3)
    assert trace.inputs("timer.timer") == [{}, {":number": 1.0}, {":number": 2.0}]
    assert trace.outputs("timer.timer") == [{":number": 1.0}, {":number": 2.0}, {":number": 3.0}]
    assert trace.cycles[0].matrix == counter().matrix


def test_a_number_in_a_field_counts_as_a_tree():
    """A matrix that reaches below a field picks one key: the sum is a number."""
    m = counter()
    m.values["matrix"]["output"]["dict-2"] = {"timer": {"timer": {":number": 3.0}}}
    trace = dmm.interpret(m, 3)
    assert trace.inputs("output.dict-2") == [{}, {":number": 3.0}, {":number": 6.0}]


def test_the_wave_moves_for_a_thousand_cycles():
    trace = dmm.interpret(dmm.wave_machine(), 1000)
    for cycle, seen in enumerate(trace.cycles):
        row = trees.prune(seen.matrix["self"]["delta"], 0.5)
        assert row == {f"update-{cycle % 3 + 1}": {"result": 1.0}}


def test_the_wave_can_be_differentiated():
    wave = dmm.wave_machine()

    def strength(values):
        last = dmm.interpret(wave.with_values(values), 4).cycles[-1]
        return last.matrix["self"]["delta"]["update-1"]["result"]

    gradient = jax.grad(strength)(wave.values)
    start = wave.values["outputs"]["self"]["result"]["self"]["delta"]["update-1"]["result"]
    step = 1e-3

    def nudged(amount):
        values = trees.map_leaves(float, wave.values)
        values["outputs"]["self"]["result"]["self"]["delta"]["update-1"]["result"] = start + amount
        return strength(values)

    slope = (nudged(step) - nudged(-step)) / (2 * step)
    found = gradient["outputs"]["self"]["result"]["self"]["delta"]["update-1"]["result"]
    assert abs(found - slope) < 1e-3
    assert found != 0


def test_a_row_for_a_neuron_that_is_not_there_carries_nothing():
    m = Machine(matrix_from="self.result")
    m.neuron("self", dmm.accum_add_args)
    m.neuron("update", dmm.constant, value={"ghost": {"x": {"self": {"result": 1.0}}}})
    m.link("self.accum", "self.result", 1.0)
    m.link("self.delta", "update.result", 1.0)
    trace = dmm.interpret(m, 4)
    assert "ghost" in trace.cycles[-1].matrix
    assert "ghost" not in trace.cycles[-1].outputs


def test_the_same_with_floats_and_with_jax_numbers():
    m, options = dmm.readable_detector(), {"text": "aa.", "governor": 4.0}
    plain = dmm.interpret(m, 25, **options).answers
    jaxed = dmm.interpret(m.with_values(trees.map_leaves(jnp.float32, m.values)), 25, **options).answers
    for field, answers in plain.items():
        assert answers == pytest.approx([float(x) for x in jaxed[field]], rel=1e-5, abs=1e-6)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(cases())
def test_a_run_does_not_change_its_machine(case):
    before = case.machine.to_json()
    first = dmm.interpret(case.machine, case.cycles, **case.options)
    assert case.machine.to_json() == before
    assert dmm.interpret(case.machine, case.cycles, **case.options).cycles == first.cycles


def test_the_gradient_agrees_with_finite_differences():
    m = dmm.readable_detector()

    def loss(values):
        answers = dmm.interpret(m.with_values(values), 16, text="aa").answers
        return sum(x * x for numbers in answers.values() for x in numbers)

    gradient = trees.paths(jax.grad(loss)(m.values))
    leaves = trees.paths(m.values)
    for path in [
        ("matrix", "norm-2-1", "dict", "accum-1-2", "dict"),
        ("matrix", "output", "dict-1", "compare-4-2", "false"),
    ]:
        up, down = ({**leaves, path: leaves[path] + step} for step in (1e-6, -1e-6))
        slope = (loss(trees.from_paths(up)) - loss(trees.from_paths(down))) / 2e-6
        assert gradient[path] == pytest.approx(slope, rel=1e-4)


def test_the_truncated_accumulator_changes_the_gradient_only():
    m = dmm.duplicate_detector()

    def last(values, **options):
        return dmm.interpret(m.with_values(values), 16, text="aa", **options).answers["dict-1"][-1]

    assert last(m.values) == last(m.values, accumulator_gradient="truncated") == 1.0
    path = ("matrix", "accum", "dict-1", "accum", "dict")
    full, truncated = (
        trees.paths(jax.grad(last)(m.values, accumulator_gradient=kind))[path]
        for kind in ("full", "truncated")
    )
    assert full != 0
    assert truncated == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: dmm.interpret(dmm.duplicate_detector(), 1), r"has no text to read; pass one to the run"),
        (
            lambda: dmm.interpret(counter(), 1, tekst="a"),
            r"no activation has an option 'tekst'; did you mean text",
        ),
        (lambda: dmm.interpret(dmm.wave_machine(), 1).answers, r"the machine has no output neuron 'output'"),
        (
            lambda: dmm.interpret(counter(), 1).outputs("timr.timer"),
            r"there is no neuron 'timr'; did you mean timer",
        ),
        (lambda: dmm.interpret(counter(), -1), r"a run has a whole number of cycles, 0 or more, but got -1"),
        (
            lambda: dmm.interpret(counter(), 1.5),
            r"a run has a whole number of cycles, 0 or more, but got 1.5",
        ),
    ],
)
def test_errors(wrong, message):
    with pytest.raises(dmm.MachineError, match=message):
        wrong()
