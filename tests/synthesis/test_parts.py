"""The parts of a synthesis: examples, several texts at once, useless links, simplification, words."""

import json

import jax
import numpy as np
import pytest

from lapwing import dmm, trees
from lapwing.dmm import MachineError
from lapwing.synthesis import Examples, by_field, errors_on
from lapwing.synthesis._tidy import tidied
from lapwing.synthesis._useless import useless
from lapwing.synthesis._wiring import Wirings
from tests.slow import some

from ..dmm.copies import with_copies

# A machine, and the same with copies of its activations under other names.
own_names = pytest.mark.parametrize(
    "same", some([lambda machine: machine, with_copies], 1), ids=["built-in", "copies"]
)
TEXTS = ["test string.", ".aa"]


@pytest.mark.slow
def test_several_texts_at_once_are_what_each_is_alone():
    machine = dmm.readable_detector()
    program = dmm.compile(machine, 25, texts=TEXTS)
    together = jax.jit(program.answers)(program.start)
    loss, gradient = jax.jit(jax.value_and_grad(program.loss))(0.9 * program.start, together)
    alone = []
    for text, answers in zip(TEXTS, together, strict=True):
        one = dmm.compile(machine, 25, text=text)
        np.testing.assert_allclose(answers, jax.jit(one.answers)(one.start), atol=1e-5)
        alone.append(jax.jit(jax.value_and_grad(one.loss))(0.9 * one.start, answers))
    np.testing.assert_allclose(loss, alone[0][0] + alone[1][0], rtol=1e-4)
    np.testing.assert_allclose(gradient, alone[0][1] + alone[1][1], rtol=1e-4, atol=1e-4)


def test_a_text_may_be_a_sequence_of_values():
    values = [{"a": 1.0}, {"b": 2.0, "c": {"u": 1.0}}, {}]
    program = dmm.compile(dmm.duplicate_detector(), 40, texts=[values, "aab"])
    expected = dmm.interpret(dmm.duplicate_detector(), 40, text=values).answers["dict-1"]
    np.testing.assert_allclose(jax.jit(program.answers)(program.start)[0, :, 0], expected)
    assert expected[-1] == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: dmm.compile(dmm.duplicate_detector(), 5, texts=["a", ""]),
            "expected texts that are not empty",
        ),
        (
            lambda: dmm.compile(dmm.duplicate_detector(), 5, texts=["a", b"b"]),
            "each a string or a list of V-values, but one is b'b'",
        ),
        (
            lambda: Examples.from_teacher(dmm.duplicate_detector(), "abc", 5),
            r"expected texts in a list, like texts=\['aab', 'abc'\], but got 'abc'",
        ),
        (
            lambda: Examples.from_function(lambda t, n: {"x": [0] * n}, "abc", 3),
            r"expected texts in a list, like texts=\['aab', 'abc'\], but got 'abc'",
        ),
        (
            lambda: Examples.from_function(lambda t, n: {"x": [0]}, ["a"], 3),
            "expected 3 numbers, one for each cycle, in each field that the function returns, but it returned 1",
        ),
        (
            lambda: dmm.compile(dmm.wave_machine(), 5, texts=["a"], watch=["self.result"]),
            "compiled for one text",
        ),
        (
            lambda: Examples.from_function(lambda t, n: {"x": [0] * len(t)}, ["a", "bc"], 3),
            r"of \[1, 2\] cycles",
        ),
        (
            lambda: Examples.from_function(lambda t, n: {}, [], 3),
            "there are no examples; give at least one",
        ),
        (lambda: Examples.load("nothing.json"), "expected in 'nothing.json' a JSON list of examples"),
        (
            lambda: errors_on(
                dmm.duplicate_detector(), Examples.from_function(lambda t, n: {"x": [0.0] * n}, ["a"], 3)
            ),
            r"the examples have targets for \['x'\], but the machine answers on \['dict-1', 'dict-2'\]",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(MachineError, match=message):
        call()


def test_examples_from_a_file_are_those_of_the_teacher(tmp_path):
    taught = Examples.from_teacher(dmm.duplicate_detector(), ["aa.", "ab."], 35)
    content = [
        {"text": text, "targets": by_field(taught.fields, table)}
        for text, table in zip(taught.texts, taught.targets, strict=True)
    ]
    file = tmp_path / "examples.json"
    file.write_text(json.dumps(content))
    read = Examples.load(file)
    assert (read.texts, read.fields) == (taught.texts, taught.fields)
    np.testing.assert_array_equal(read.targets, taught.targets)


def wirings_of(student: dmm.Machine) -> Wirings:
    return Wirings(student, [Examples.from_teacher(dmm.duplicate_detector(), ["aab.a.."], 80)])


@own_names
def test_links_that_carry_nothing_are_found(same):
    student = same(dmm.feedforward_student(layers=2, width=1))
    wirings = wirings_of(student)
    wanted = {
        "accum-1-1.dict-2 ← input.char",
        "norm-2-1.dict ← accum-1-1.dict",
        "output.dict-1 ← norm-2-1.norm",
        "output.dict-2 ← dot-2-1.dot",  # but it has only one factor
        "dot-2-1.dict-1 ← accum-1-1.dict",
        "norm-1-1.dict ← eos.char",  # that nobody reads
    }
    kept = ~wirings.soft | np.array([name in wanted for name in wirings.names(np.ones_like(wirings.soft))])
    assert set(wirings.names(useless(wirings, kept))) == {
        "output.dict-2 ← dot-2-1.dot",
        "dot-2-1.dict-1 ← accum-1-1.dict",
        "norm-1-1.dict ← eos.char",
    }


def clumsy() -> dmm.Machine:
    """The duplicate detector in a feed-forward student, as training leaves it: odd scales, a compare that reads twice,
    a constant through another neuron, the same norm twice, and a compare that is another one's mirror image."""
    weights = {
        ("accum-1-1.dict-2", "input.char"): -0.7,
        ("norm-2-1.dict", "accum-1-1.dict"): 0.5,
        ("norm-2-2.dict", "accum-1-1.dict"): -1.5,
        ("compare-1-1.dict-2", "const_1.const_1"): -0.5,
        ("compare-3-1.dict-1", "norm-2-1.norm"): 0.5,
        ("compare-3-1.dict-1", "norm-2-2.norm"): 0.5,
        ("compare-3-1.dict-2", "norm-2-1.norm"): -0.25,
        ("compare-3-1.dict-2", "compare-1-1.true"): 1.575,
        ("output.dict-1", "compare-3-1.true"): 0.6 / 0.7875,
        ("compare-3-2.dict-1", "const_1.const_1"): 0.3,
        ("compare-3-2.dict-1", "norm-2-1.norm"): -0.3 / 0.35,
        ("output.dict-1", "compare-3-2.false"): 0.4 / 0.3,
        ("dot-2-1.dict-1", "accum-1-1.dict"): 2.0,
        ("dot-2-1.dict-2", "eos.char"): -0.9,
        ("output.dict-2", "dot-2-1.dot"): 1 / 1.26,
    }
    m = dmm.feedforward_student(layers=3, width=2)
    student_links = {(f"{k.to}.{k.to_field}", f"{k.source}.{k.source_field}"): k for k in m.links()}
    values = {}
    for address, link in student_links.items():
        if link.hard or address in weights:
            path = ("matrix", link.to, link.to_field, link.source, link.source_field)
            values[path] = link.weight if link.hard else weights[address]
    return m.with_values(trees.from_paths(values))


@own_names
def test_a_clumsy_machine_is_simplified_to_the_handcrafted_one(same):
    wirings = wirings_of(same(dmm.feedforward_student(layers=3, width=2)))
    machine, error, moves = tidied(wirings, same(clumsy()), 0.0, allowed=0.01)
    assert error < 1e-6
    assert len(machine.soft()) == 8
    assert [link.weight for link in machine.links()] == pytest.approx([1.0] * len(machine.links()), abs=1e-6)
    assert any("only passed" in what for what in moves)
    assert any(what == "norm-2-2 is norm-2-1" for what in moves)
    assert dmm.in_words(machine).splitlines()[-2:] == [
        "The answer dict-1 is compare-3-1.true.",
        "The answer dict-2 is dot-2-1.",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x00\xff", r"expected in .* a JSON list of examples, .* but it is not text in UTF-8"),
        (b'[{"text":', r"a JSON list of examples, .* but it is not JSON"),
        (b'{"text": "a"}', r"a JSON list of examples, .* but it has an object with 'text'"),
        (b"[1, 2]", r"a JSON list of examples, .* but number 1 is 1"),
        (b'[{"text": "a"}]', r"a JSON list of examples, .* but number 1 is an object with 'text'"),
        (b'[{"text": "a", "targets": {"x": [NaN]}}]', r"targets of 'a' to be .* but they are {'x': \[nan\]}"),
        (b'[{"text": 5, "targets": {"x": [1]}}]', r"expected the text of an example, .* but found 5"),
        (
            b'[{"text": [null], "targets": {"x": [1]}}]',
            r"expected the text of an example, .* but found \[None\]",
        ),
        (b'[{"text": "a", "targets": {"x": 5}}]', r"targets of 'a' to be .* but they are {'x': 5}"),
        (b'[{"text": "a", "targets": {"x": ["y"]}}]', r"targets of 'a' to be .* but they are {'x': \['y'\]}"),
        (b'[{"text": "a", "targets": [1]}]', r"targets of 'a' to be .* but they are \[1\]"),
        (b'[{"text": "a", "targets": {}}]', r"targets of 'a' to be .* but they are {}"),
    ],
)
def test_examples_that_cannot_be_read(content, message, tmp_path):
    file = tmp_path / "examples.json"
    file.write_bytes(content)
    with pytest.raises(dmm.MachineError, match=message):
        Examples.load(file)


def test_the_fields_of_an_example_may_come_in_any_order(tmp_path):
    file = tmp_path / "examples.json"
    file.write_text(
        '[{"text": "a", "targets": {"x": [1], "y": [2]}}, {"text": "b", "targets": {"y": [4], "x": [3]}}]'
    )
    assert Examples.load(file).targets.tolist() == [[[1.0, 2.0]], [[3.0, 4.0]]]


@pytest.mark.parametrize("texts", [5, None, "aab", {"aab": 1}])
def test_what_is_no_list_of_texts(texts):
    with pytest.raises(dmm.MachineError, match="expected texts in a list, like texts="):
        Examples.from_teacher(dmm.duplicate_detector(), texts, 3)
