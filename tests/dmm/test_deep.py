"""Links that read a part of a field: values and addresses of any depth. Random ones are in test_compile_agrees."""

import jax
import numpy as np
import pytest

from lapwing import dmm, trees
from lapwing.dmm import Machine, MachineError
from tests.slow import some

VALUE = {"a": {"b": {"c": 3.0, trees.NUMBER: 5.0}}, "d": 7.0}


def reading(key, value=VALUE) -> Machine:
    """`norm` takes the largest part of what is under the key."""
    m = Machine()
    for name, activation in (("norm", dmm.norm), ("output", dmm.output)):
        m.neuron(name, activation)
    m.neuron("source", dmm.constant, value=value)
    m.link("norm.dict", "source.result", 2.0, key=key)
    m.link("output.dict-1", "norm.norm", 1.0)
    m.link("output.dict-2", "source.result", 1.0, key=key)
    return m


@pytest.mark.parametrize(
    ("key", "part", "number"),
    some(
        [
            ("d", {trees.NUMBER: 14.0}, 7.0),
            ("a", {"b": {"c": 6.0, trees.NUMBER: 10.0}}, 0.0),
            (("a", "b"), {"c": 6.0, trees.NUMBER: 10.0}, 5.0),
            (("a", "b", "c"), {trees.NUMBER: 6.0}, 3.0),
            (("a", "b", trees.NUMBER), {trees.NUMBER: 10.0}, 5.0),
            (("a", "b", "c", "d"), {}, 0.0),
            ("nothing", {}, 0.0),
        ],
        0,
        3,
        6,
    ),
)
def test_what_a_link_of_a_part_carries(key, part, number):
    machine = reading(key)
    trace = dmm.interpret(machine, 3)
    assert trace.inputs("norm.dict")[-1] == part
    program = dmm.compile(machine, 3)
    answers = jax.jit(program.answers)(program.start)
    assert answers[-1].tolist() == [trees.max_norm(part), number]
    assert answers[-1].tolist() == [trace.answers[field][-1] for field in program.fields]


def test_a_link_with_a_key_is_a_link_like_any_other():
    m = reading(("a", "b"))
    (link,) = (link for link in m.links() if link.to == "norm")
    assert (link.key, link.origin, link.dead) == (("a", "b"), "source.result/a/b", False)
    assert "norm ← 2 source.result/a/b" in dmm.listing(m).replace("dict ←", "norm ←")
    assert Machine.from_json(m.to_json()).links() == m.links()
    assert m.matrix["norm"]["dict"] == {"source": {"result": {"a": {"b": 2.0}}}}


@pytest.mark.slow
def test_several_texts():
    m = dmm.duplicate_detector()
    m.link("output.dict-2", "accum.dict", 10.0, key="b")
    texts = ["bb", "ab", "cc"]
    program = dmm.compile(m, 15, texts=texts)
    found = jax.jit(program.answers)(program.start)[:, -1, 1].tolist()
    assert (
        found
        == [dmm.interpret(m, 15, text=text).answers["dict-2"][-1] for text in texts]
        == [20.0, 10.0, 0.0]
    )


def test_a_value_of_thirty_levels():
    key = tuple(f"k{depth}" for depth in range(30))
    machine = reading(key, trees.from_paths({key: 4.0}))
    program = dmm.compile(machine, 3)
    gradient = jax.jit(jax.grad(lambda params: program.answers(params)[-1].sum()))(program.start)
    assert jax.jit(program.answers)(program.start)[-1].tolist() == [8.0, 4.0]
    assert dict(zip((path[1] for path in program.paths), gradient.tolist(), strict=True))["norm"] == 4.0


def test_an_answer_that_is_a_weight_of_the_matrix():
    wave = dmm.learnable_wave(3)
    program = dmm.compile(wave, 7)
    found = jax.jit(program.answers)(program.start)[:, 0]
    assert found.tolist() == dmm.interpret(wave, 7).answers["dict-1"] == [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    np.testing.assert_array_equal(jax.jit(program.answers)(program.start)[:, 1], 0.0)


def test_the_number_of_what_is_a_number_or_a_tree_is_refused():
    """Interpreted, a link of a/:number reads nothing as long as `a` is a number, and the number as soon as it has met
    a tree."""
    m = reading(("a", trees.NUMBER), {"a": 2.0})
    m.neuron("tree", dmm.constant, value={"a": {"b": 1.0}})
    m.neuron("accum", dmm.accum)
    m.link("accum.dict-1", "source.result", 1.0)
    m.link("accum.dict-2", "tree.result", 1.0)
    m.link("output.dict-1", "accum.dict", 1.0, key=("a", trees.NUMBER))
    assert dmm.interpret(m, 4).answers["dict-1"][-1] == 2.0
    with pytest.raises(
        MachineError, match=r"the same key can be a number in one field and a tree in another; give"
    ):
        dmm.compile(m, 4)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ((), "a", "source.result/a reads a part of what another link reads"),
        ("a", (), "reads all of what another"),
    ],
)
def test_a_field_is_read_as_a_whole_or_in_parts(first, second, message):
    m = reading("d")
    m.neuron("other", dmm.norm)
    m.link("other.dict", "source.result", 1.0, key=first)
    with pytest.raises(MachineError, match=message + ".*take a neuron in between"):
        m.link("other.dict", "source.result", 1.0, key=second)
