"""Neurons that come to be during a run: when they are there, what they compute, and the capacity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing import dmm, trees
from lapwing.dmm import Machine, MachineError


def growing(**options) -> Machine:
    return dmm.growing_machine(3).with_options(**options)


def one_more(weight: float, name: str = "new") -> Machine:
    """In every cycle `weight` more of a mix reaches the neuron `new`."""
    m = Machine(matrix_from="self.result")
    m.grow([dmm.accum_add_args], capacity=1)
    for neuron, activation in (("self", dmm.accum_add_args), ("one", dmm.const_1), ("output", dmm.output)):
        m.neuron(neuron, activation)
    m.neuron("kind", dmm.constant, value={"accum_add_args": 1.0})
    rows = {
        dmm.FUNCTION: {"kind": {"result": weight}},
        "delta": {"one": {"const_1": 1.0}},
    }
    m.neuron("edit", dmm.constant, value={name: rows, "output": {"dict-1": {name: {"result": 1.0}}}})
    m.link("self.accum", "self.result", 1.0, hard=True)
    m.link("self.delta", "edit.result", 1.0, hard=True)
    return m


def test_a_neuron_comes_to_be_with_its_mix_and_computes():
    trace = dmm.interpret(one_more(0.5), 6)
    assert trace.born == [(), (), ("new",), ("new",), ("new",), ("new",)]
    # Mix and input grow with every edit: k/2 of the mix times k of the input.
    assert [trees.number(x) for x in trace.outputs("new.result")] == [0.0, 0.0, 0.5, 2.0, 4.5, 8.0]
    assert trace.answers["dict-1"] == [0.0, 0.0, 0.0, 0.5 * 2, 2.0 * 3, 4.5 * 4]


def test_a_mix_of_zero_is_no_neuron():
    trace = dmm.interpret(one_more(0.0), 5)
    assert trace.born == [()] * 5
    program = dmm.compile(one_more(0.0), 5)
    assert jax.jit(program.born)(program.start).tolist() == [0] * 5


def test_a_machine_that_cannot_grow_ignores_the_rows():
    m = one_more(1.0)
    m.newborn = None
    assert dmm.interpret(m, 5).answers["dict-1"] == [0.0] * 5
    assert "new" not in dmm.interpret(m, 5).cycles[-1].outputs


def test_compiled_and_interpreted_count_the_same():
    program = dmm.compile(growing(), 14, watch=["cell-2.result"])
    trace = dmm.interpret(growing(), 14)
    assert jax.jit(program.born)(program.start).tolist() == [len(names) for names in trace.born]
    seen = jax.jit(program.watched)(program.start)["cell-2.result"][trees.NUMBER]
    np.testing.assert_allclose(seen, [trees.number(x) for x in trace.outputs("cell-2.result")], rtol=1e-6)
    assert seen[-1] > 0


def test_more_neurons_than_the_capacity():
    machine = growing(births=5)
    message = (
        "in cycle 15 the machine has 4 neurons that came to be during the run, but its capacity is 3; "
        r"write m.grow\(..., capacity=4\) or more"
    )
    with pytest.raises(MachineError, match=message):
        dmm.interpret(machine, 20)
    program = dmm.compile(machine, 20)
    answers = jax.jit(program.answers)(program.start)
    assert np.isnan(answers).all(axis=1).tolist() == [cycle >= 15 for cycle in range(1, 21)]
    with pytest.raises(MachineError, match=message):
        program.check_capacity(program.start)
    assert not np.isnan(answers[:14]).any()
    enough = dmm.compile(growing(births=3), 20)
    enough.check_capacity(enough.start)


@pytest.mark.slow
def test_a_batch_of_growing_machines():
    program = dmm.compile(growing(), 14)
    many = jnp.stack([program.start, jnp.where(program.soft, 0.5, program.start)])
    together = jax.jit(program.answers)(many)
    for params, answers in zip(many, together, strict=True):
        np.testing.assert_allclose(answers, jax.jit(program.answers)(params), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_several_texts_each_with_neurons_of_its_own():
    """The mix of `other` is what is read: a character is none of its functions."""
    m = one_more(1.0)
    for name, activation in (("timer", dmm.timer), ("input", dmm.input_text)):
        m.neuron(name, activation)
        m.link(f"{name}.timer", "timer.timer", 1.0, hard=True)
    m.neuron("edit-2", dmm.constant, value={"other": {dmm.FUNCTION: {"input": {"char": 1.0}}}})
    m.link("self.delta", "edit-2.result", 1.0, hard=True)
    texts = ["ab", [{"accum_add_args": 1.0}]]
    program = dmm.compile(m, 15, texts=texts)
    counts = [[len(names) for names in _born(m, text)] for text in texts]
    assert jax.jit(program.born)(program.start).tolist() == counts
    assert [max(each) for each in counts] == [1, 2]
    with pytest.raises(MachineError, match="the machine has 2 neurons that came to be"):
        program.check_capacity(program.start)
    assert np.isnan(jax.jit(program.answers)(program.start)).any(axis=(1, 2)).tolist() == [False, True]


def _born(m: Machine, text) -> list[tuple[str, ...]]:
    m = m.with_options(text=text)
    m.capacity = 2
    return dmm.interpret(m, 15).born


def test_options_reach_neurons_that_are_not_there_yet():
    m = one_more(1.0).with_options(accumulator_gradient="truncated")
    assert m.newborn is not None
    assert m.newborn.functions[0].truncated


def test_a_growing_machine_as_json():
    m = growing(period=2)
    again = Machine.from_json(m.to_json())
    assert again.capacity == 3
    assert dmm.interpret(again, 14).answers == dmm.interpret(m, 14).answers
    assert "up to 3 neurons can come to be, of accum_add_args, max_norm_dict" in dmm.listing(again)
    with pytest.raises(
        MachineError, match="a capacity is a whole number of neurons, 1 or more, but got None"
    ):
        Machine.from_json(m.to_json().replace('"capacity": 3', '"room": 3'))


def test_parameters_go_back_into_a_machine_that_still_grows():
    program = dmm.compile(growing(), 14)
    again = program.with_params(program.start)
    assert dmm.interpret(again, 14).born == dmm.interpret(growing(), 14).born


def test_sprout_numbers_its_template():
    template = {"cell-{n}": {"x": {"cell-{n-1}": {"y": 2.0}}}}
    for tick, expected in ((0.0, {}), (2.0, {}), (6.0, {"cell-2": {"x": {"cell-1": {"y": 2.0}}}}), (9.0, {})):
        given = {"template": template, "timer": {trees.NUMBER: tick}}
        sprout = dmm.sprout.with_options(births=2)
        assert sprout(given) == {"result": expected}
        traced = jax.jit(lambda tick, sprout=sprout: sprout({"template": template, "timer": tick}))(tick)
        assert trees.prune(traced, 1e-9).get("result", {}) == expected


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda: Machine().grow([dmm.accum_add_args], capacity=2),
            r"expected a machine that holds its matrix in a neuron.*write Machine\(matrix_from='self.result'\)",
        ),
        (
            lambda: Machine(matrix_from="self.result").grow([dmm.accum_add_args], capacity=0),
            "a capacity is a whole number of neurons, 1 or more, but got 0",
        ),
        (
            lambda: dmm.interpret(growing(period=0), 14),
            "every `period` ticks and makes `births`, both 1 or more, but got 0 and 3",
        ),
        (
            lambda: dmm.interpret(growing(), 14).outputs("cel-1.result"),
            "no neuron 'cel-1'; did you mean cell-1",
        ),
        (
            lambda: dmm.compile(growing(), 14, watch=["cell-4.result"]),
            "there is no output field cell-4.result to watch; did you mean cell-",
        ),
    ],
)
def test_errors(wrong, message):
    with pytest.raises(MachineError, match=message):
        wrong()
