"""Activations that cannot be compiled are refused in a sentence, not by an error of jax, and never compiled wrong."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing import dmm, trees
from lapwing.dmm import MachineError


def machine_of(activation: dmm.Activation) -> dmm.Machine:
    m = dmm.Machine()
    for name, each in {"one": dmm.const_1, "it": activation, "output": dmm.output}.items():
        m.neuron(name, each)
    for field in activation.inputs:
        m.link(f"it.{field}", "one.const_1", 2.0)
    m.link("output.dict-1", f"it.{activation.outputs[0]}", 1.0)
    return m


def of_number(function) -> dmm.Activation:
    """An activation from one number to another."""

    @dmm.activation(inputs=("x",), outputs=("y",), name="mine")
    def mine(inputs):
        return {"y": function(trees.number(inputs["x"]))}

    return mine


@pytest.mark.parametrize(
    "function",
    [lambda x: x if x > 0 else 0.0, math.tanh, np.tanh, lambda x: float(x) + 1],
    ids=["if", "math.tanh", "np.tanh", "float"],
)
def test_what_needs_the_value_of_a_number(function):
    with pytest.raises(
        MachineError, match=r"'mine' uses the value of a number .* write jnp.where\(condition"
    ):
        dmm.compile(machine_of(of_number(function)), 3)


def test_the_interpreter_runs_it_and_says_the_same_when_it_is_differentiated():
    m = machine_of(of_number(math.tanh))
    assert dmm.interpret(m, 3).answers["dict-1"] == [0.0, 0.0, math.tanh(2.0)]

    def last(values):
        return dmm.interpret(m.with_values(values), 3).answers["dict-1"][-1]

    with pytest.raises(MachineError, match=r"'mine' uses the value of a number"):
        jax.grad(last)(m.values)


def test_functions_of_jax_compile():
    program = dmm.compile(machine_of(of_number(lambda x: jnp.where(x > 0, jax.nn.relu(jnp.tanh(x)), 0.0))), 3)
    np.testing.assert_allclose(program.answers(program.start)[:, 0], [0, 0, np.tanh(2.0)], rtol=1e-6)


def counting():
    calls = []

    def count(x):
        calls.append(x)
        return float(len(calls))

    return count


def remembering():
    kept = {"x": 0.0}

    def before(x):
        found, kept["x"] = kept["x"], x
        return found + 0.0 * x

    return before


def drawing():
    draw = np.random.default_rng(0)
    return lambda x: x * draw.normal()


def alternating():
    calls = []

    def choose(x):
        calls.append(0)
        return jnp.sin(x) - x if len(calls) % 2 else x - jnp.sin(x)

    return choose


@pytest.mark.parametrize("made", [counting, remembering, drawing, alternating])
def test_an_activation_with_state(made):
    message = (
        r"'mine' returns something else when it is called again with the same inputs.*keep what it remembers"
    )
    with pytest.raises(MachineError, match=message):
        dmm.compile(machine_of(of_number(made())), 3)


def test_an_activation_with_state_among_those_of_a_mix():
    mine = of_number(counting())
    m = dmm.Machine()
    m.fluid("both", [dmm.accum_add_args, mine], {"accum_add_args": 1.0, "mine": 1.0})
    m.neuron("output", dmm.output)
    m.link("output.dict-1", "both.y", 1.0)
    with pytest.raises(MachineError, match=r"'mine' returns something else"):
        dmm.compile(m, 3)


@pytest.mark.parametrize(
    ("option", "value", "kind"),
    [
        ("text", 5, r"str \| Sequence\[str \| float \| dict\[str, Any\]\] \| None, but got 5"),
        ("text", b"aab", r"str \| Sequence.* but got b'aab'"),
        ("text", [None], r"str \| Sequence.* but got \[None\]"),
        ("period", "x", r"int, but got 'x'"),
        ("period", 1.5, r"int, but got 1.5"),
        ("governor", "4", r"float \| None, but got '4'"),
        ("governor", math.nan, r"float \| None, but got nan"),
    ],
)
@pytest.mark.parametrize("run", [dmm.interpret, dmm.compile])
def test_an_option_of_another_type(run, option, value, kind):
    options = {"text": "aab", option: value}
    with pytest.raises(MachineError, match=rf"the option '{option}' of '\w+' should be {kind}"):
        run(dmm.duplicate_detector(), 3, **options)
    if option == "text":
        with pytest.raises(MachineError, match=r"the option 'text' of 'input_dummy' should be"):
            run(dmm.superfluid_student(1, 1), 3, text=value)


@pytest.mark.parametrize("run", [dmm.interpret, dmm.compile])
def test_a_period_of_zero(run):
    with pytest.raises(MachineError, match=r"a character every `period` ticks, but the period is 0"):
        run(dmm.duplicate_detector(), 3, text="aab", period=0)


@pytest.mark.parametrize("value", [4, 4.0, np.float32(4), math.inf, None, jnp.float32(4)])
def test_numbers_of_all_libraries_are_options(value):
    assert dmm.dot.with_options(governor=value).options["governor"] == value
    assert dmm.input_text.with_options(period=np.int64(3)).options["period"] == 3


@pytest.mark.parametrize("run", [dmm.interpret, dmm.compile])
def test_cycles_are_whole_numbers_of_any_library(run):
    assert len(np.asarray(dmm.interpret(dmm.duplicate_detector(), np.int64(4), text="a").cycles, object)) == 4
    assert dmm.compile(dmm.duplicate_detector(), np.int32(4), text="a").cycles == 4
    for cycles in (-1, 2.0, "3", None, True):
        with pytest.raises(MachineError, match=r"a whole number of cycles, 0 or more, but got"):
            run(dmm.duplicate_detector(), cycles, text="a")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("yes", r"'mine' returned no V-value: .* 'y'/':number' is 'yes' of type str"),
        (None, r"'mine' returned no V-value: .* is None"),
        (True, r"'mine' returned no V-value: .* is True of type bool"),
        (lambda x: x > 1, r"'mine' returned no V-value: .* is False of type bool"),
        (
            lambda x: jnp.greater(x, 1),
            r"'mine' put a condition at 'y'/':number'; write jnp.where\(condition, 1.0, 0.0\)",
        ),
    ],
)
def test_what_is_no_number_is_refused(answer, message):
    function = answer if callable(answer) else lambda x: answer
    with pytest.raises(MachineError, match=message):
        dmm.compile(machine_of(of_number(function)), 3)


def test_a_constant_that_is_not_a_number_is_no_state():
    program = dmm.compile(machine_of(of_number(lambda x: float("nan"))), 3)
    assert np.isnan(program.answers(program.start)[-1, 0])
