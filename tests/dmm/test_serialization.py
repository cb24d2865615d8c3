"""Machines as JSON, as a published matrix and as a superfluid tree."""

import json

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.dmm_lite_weights import convert
from lapwing import dmm, trees
from lapwing.dmm import Machine
from lapwing.dmm._published import LITE_WEIGHTS

from .strategies import cases


def same(a: Machine, b: Machine) -> bool:
    return (a.neurons, a.values, a.hard, a.output, a.matrix_from) == (
        b.neurons,
        b.values,
        b.hard,
        b.output,
        b.matrix_from,
    )


@settings(max_examples=60, deadline=None)
@given(cases())
def test_a_machine_survives_its_json(case):
    assert same(Machine.from_json(case.machine.to_json()), case.machine)


@pytest.mark.parametrize("build", [dmm.wave_machine, dmm.readable_detector, dmm.superfluid_student])
def test_the_published_machines_survive_their_json(build):
    assert same(Machine.from_json(build().to_json()), build())


def test_float32_weights_are_exact_in_json():
    m = Machine()
    m.neuron("norm", dmm.norm)
    m.link("norm.dict", "norm.norm", np.float32(0.1))
    (link,) = Machine.from_json(m.to_json()).links()
    assert np.float32(link.weight).tobytes() == np.float32(0.1).tobytes()


def test_options_survive():
    m = Machine()
    m.neuron("dot", dmm.dot, governor=4.0)
    m.neuron("norm", dmm.norm, norm_ties="last", norm_order=("b", "a"))
    again = Machine.from_json(m.to_json())
    assert again.neurons == m.neurons


def test_the_published_form_is_the_matrix_alone():
    detector = dmm.duplicate_detector()
    m = Machine.from_json(json.dumps(detector.matrix))
    assert m.matrix == detector.matrix
    assert set(m.neurons) == set(detector.neurons)
    assert m.neurons["compare"].functions == (dmm.compare,)
    assert m.hard == detector.hard


MATRIX = {"norm-1": {"dict": {"accum-7": {"dict": 0.5, "false": 0.25}}, "true": {"eos": {"char": 1.0}}}}


def test_dead_links_are_kept_dropped_or_refused():
    kept = Machine.from_matrix(MATRIX, dead_links="keep")
    assert [(link.source_field, link.dead) for link in kept.links()] == [
        ("dict", False),
        ("false", True),
        ("char", True),
    ]
    dropped = Machine.from_matrix(MATRIX, dead_links="drop")
    assert [link.source_field for link in dropped.links()] == ["dict"]
    with pytest.raises(dmm.MachineError, match=r"the neuron 'accum-7' writes no field 'false'"):
        Machine.from_matrix(MATRIX)


def test_rows_can_be_hard():
    detector = Machine.from_matrix(dmm.duplicate_detector().matrix, hard_rows=("timer", "input"))
    assert detector.hard == dmm.duplicate_detector().hard


def test_the_published_weights_of_dmm_lite():
    m = dmm.lite_start()
    assert (trees.count(m.matrix), len(m.matrix), len(m.soft())) == (851, 23, 849)
    assert any(link.dead and (link.source, link.source_field) == ("dot-2", "false") for link in m.links())
    whole = dmm.lite_start(below=0.0)
    assert trees.paths(whole.matrix).keys() == trees.paths(dmm.lite_student().matrix).keys()
    assert (
        whole.matrix["output"]["dict-2"]["norm-5"]["true"] == -3.2187607e-05
    )  # all digits of the publication


def test_the_shipped_weights_are_converted_from_the_published_format(tmp_path):
    published, packed = tmp_path / "published.json", tmp_path / "weights.npz"
    published.write_text(trees.to_json(dmm.lite_start(below=0.0).matrix))
    convert(published, packed)
    with np.load(packed) as again, np.load(LITE_WEIGHTS) as shipped:
        np.testing.assert_array_equal(again["weights"], shipped["weights"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda: Machine.from_matrix(MATRIX, {"accum-7": dmm.accum}),
            r"the matrix has a row norm-1.dict, but there is no neuron 'norm-1'; there are accum-7",
        ),
        (
            lambda: Machine.from_matrix(MATRIX, {"norm-1": dmm.norm}, dead_links="keep"),
            r"there is no neuron 'accum-7' to link from",
        ),
        (
            lambda: Machine.from_matrix({"nrom-1": {"dict": {"accum": {"dict": 1.0}}}}),
            r"the neuron 'nrom-1' does not begin with that of an activation; did you mean norm\?",
        ),
        (
            lambda: Machine.from_matrix({"norm": {"dict": 1.0}}),
            r"weights at \[to\]\[to_field\]\[from\]\[from_field\] or deeper, but one is at 'norm'/'dict'",
        ),
        (
            lambda: Machine.from_json('{"form": "lapwing machine 1", "output": "o", "matrix_from": null}'),
            r"expected a machine in the form 'lapwing machine 1', but its part 'neurons' is missing",
        ),
        (
            lambda: Machine.from_json(dmm.duplicate_detector().to_json().replace('"dot": {', '"dto": {', 1)),
            r"the matrix has a row dot.dict-1, but there is no neuron 'dot'; did you mean dto\?",
        ),
        (
            lambda: Machine.from_json(dmm.duplicate_detector().to_json().replace('"eos": {', '"esos": {', 1)),
            r"the matrix reads eos.char, but there is no neuron 'eos'; did you mean esos\?",
        ),
        (lambda: Machine.from_json('{"form": "x"}'), r"expected a machine in the form 'lapwing machine 1'"),
        (lambda: Machine.from_json("[1]"), r"expected the JSON object of a machine, but found a list"),
        (
            lambda: Machine.from_json("{"),
            r"expected the JSON text of a machine, but it is not JSON: Expecting",
        ),
        (
            lambda: Machine.from_matrix({"norm": {"dict": {"accum": {"dict": float("nan")}}}}),
            r"the link norm.dict ← accum.dict must be a finite number, but is nan",
        ),
        (
            lambda: Machine.from_superfluid({"a": {"result": {}}}),
            r"the neuron 'a' of the superfluid tree has no ':function'; give it its mix",
        ),
        (
            lambda: Machine.from_superfluid(
                {"self": {":function": {"accum": 1.0}, "result": {"b": MATRIX["norm-1"]}}}
            ),
            r"the matrix has a row b.dict, but there is no neuron 'b'; there are self",
        ),
    ],
)
def test_errors(wrong, message):
    with pytest.raises(dmm.MachineError, match=message):
        wrong()


def test_a_superfluid_tree_is_a_machine():
    student = dmm.superfluid_start()
    outputs = student.values["outputs"]
    m = Machine.from_superfluid(outputs, soft=[path[1:] for path in student.soft()])
    assert (m.values, m.hard, m.matrix_from) == (student.values, student.hard, student.matrix_from)
    for name, neuron in m.neurons.items():
        assert neuron.fluid
        assert set(neuron.functions) == set(student.neurons[name].functions)
    assert len(Machine.from_superfluid(outputs).soft()) == 2944


def soft_matrix(machine: Machine) -> trees.Tree:
    """As the published feed-forward runs are written: without the fixed links."""
    leaves = {path: leaf for path, leaf in trees.paths(machine.values).items() if path not in machine.hard}
    return trees.from_paths(leaves)["matrix"]


@pytest.mark.parametrize("machine", [dmm.readable_detector(), dmm.feedforward_student(2, 1)])
def test_a_published_matrix_of_the_trained_links_alone(machine, tmp_path):
    read = Machine.from_json(trees.to_json(soft_matrix(machine)))
    assert (read.matrix, read.hard) == (machine.matrix, machine.hard)
    file = tmp_path / "matrix.json"
    file.write_text(trees.to_json(soft_matrix(machine)))
    assert Machine.load(file).hard == machine.hard
    again = Machine.from_json(read.to_json())
    assert (again.matrix, again.hard) == (machine.matrix, machine.hard)


def test_the_readable_machine_from_its_trained_links_alone():
    m = Machine.from_matrix(soft_matrix(dmm.readable_detector()))
    ours = dmm.interpret(m, 140, text="test string.", governor=4.0).answers
    theirs = dmm.interpret(dmm.duplicate_detector(), 140, text="test string.").answers
    errors = [(a - b) ** 2 for field in ours for a, b in zip(ours[field], theirs[field], strict=True)]
    assert sum(errors) == pytest.approx(0.0016101, abs=5e-8)


def test_a_matrix_that_has_its_own_clock_or_no_input_is_left_as_it_is():
    clock = {"timer": {"timer": {"timer": {"timer": 0.5}}}}
    sums = {"accum-1": {"dict-2": {"input": {"char": 1.0}}}}
    for matrix in ({**clock, **sums}, {"accum-1": {"dict-2": {"eos": {"char": 1.0}}}}):
        assert Machine.from_matrix(matrix).matrix == matrix
    memory = {"accum-1": {"dict-1": {"accum-1": {"dict": 0.9}}, "dict-2": {"input": {"char": 1.0}}}}
    assert Machine.from_matrix(memory).matrix["accum-1"] == memory["accum-1"]
