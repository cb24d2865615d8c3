"""Trees in which a key is a number here and a tree there: the compiler agrees with the interpreter, or refuses."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing import dmm, trees
from lapwing.dmm import MachineError
from tests.slow import some

from .strategies import gate, squash, weight, wrap
from .test_compile_agrees import QUICK, interpreted

KEYS = ("a", "b", trees.NUMBER)
CYCLES = 6


def random_tree(draw: random.Random, depth: int = 3) -> trees.Tree:
    keys = [key for key in KEYS if draw.random() < 0.5]
    inner = {key: random_tree(draw, depth - 1) for key in keys if depth > 1 and draw.random() < 0.4}
    return {key: inner.get(key) or weight(draw) for key in keys}


def random_machine(seed: int) -> dmm.Machine:
    """Streams of random trees into random neurons, all of which are read by others or by the output."""
    draw = random.Random(seed)
    m = dmm.Machine()
    m.neuron("timer", dmm.timer)
    m.neuron("output", dmm.output)
    clock_is_hard = draw.random() < 0.5
    m.link("timer.timer", "timer.timer", 1.0, hard=clock_is_hard)
    before = []
    for k in range(3):
        m.neuron(f"input-{k}", dmm.input_text, text=[random_tree(draw) for _ in range(CYCLES)], period=1)
        m.link(f"input-{k}.timer", "timer.timer", 1.0, hard=clock_is_hard)
        before.append(f"input-{k}.char")
    for k in range(5):
        activation = draw.choice((dmm.dot, dmm.dot, dmm.accum, dmm.norm, dmm.compare, squash, gate, wrap))
        m.neuron(f"it-{k}", activation)
        for field in activation.inputs:
            for source in draw.sample(before, draw.randint(1, 2)):
                m.link(f"it-{k}.{field}", source, weight(draw))
        if activation.accumulator:
            m.link(f"it-{k}.dict-1", f"it-{k}.dict", 0.5)
        before += [f"it-{k}.{field}" for field in activation.outputs]
    if draw.random() < 0.5:
        m.initial("it-0." + m.neurons["it-0"].outputs[0], random_tree(draw, 2) or 0.5, hard=False)
    for field in ("dict-1", "dict-2"):
        for source in draw.sample(before[3:], 3):
            m.link(f"output.{field}", source, weight(draw))
    return m


def check(machine: dmm.Machine, derivatives: bool) -> None:
    with jax.enable_x64(True):
        program = dmm.compile(machine, CYCLES)
        answers = jax.jit(program.answers).lower(program.start).compile(compiler_options=QUICK)(program.start)
        expected = dmm.interpret(machine, CYCLES).answers
        np.testing.assert_allclose(
            answers.T, [expected[field] for field in program.fields], rtol=1e-9, atol=1e-12
        )
        if derivatives:
            draw = random.Random(0)
            direction = jnp.array([weight(draw) for _ in program.paths]) * program.soft
            point = (program.start,), (direction,)
            run = jax.jit(lambda p, d: jax.jvp(program.answers, p, d)[1])
            slopes = run.lower(*point).compile(compiler_options=QUICK)(*point)
            expected = jax.jvp(lambda p: interpreted(program, p), *point)[1]
            np.testing.assert_allclose(slopes, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("seed", some(range(3), 0))
def test_random_trees(seed):
    check(random_machine(seed), derivatives=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 25))
def test_more_random_trees_and_their_derivatives(seed):
    check(random_machine(seed), derivatives=True)


def paired(activation: dmm.Activation) -> dmm.Machine:
    """`a` is a number in the first field, and in the second a number at first and a tree later."""
    m = dmm.Machine()
    m.neuron("timer", dmm.timer)
    m.neuron("number", dmm.constant, value={"a": 1.0})
    m.neuron("mixed", dmm.input_text, text=[{"a": 2.0}, {"a": {"x": 1.0}}], period=1)
    m.neuron("pair", activation)
    m.neuron("output", dmm.output)
    m.link("timer.timer", "timer.timer", 1.0, hard=True)
    m.link("mixed.timer", "timer.timer", 1.0, hard=True)
    m.link(f"pair.{activation.inputs[0]}", "number.result", 1.0)
    m.link(f"pair.{activation.inputs[1]}", "mixed.char", 1.0)
    m.link("output.dict-1", f"pair.{activation.outputs[0]}", 1.0)
    return m


def test_a_key_that_is_a_number_in_one_field_and_a_tree_in_the_other():
    m = paired(dmm.dot)
    assert dmm.interpret(m, 4).answers["dict-1"] == [0.0, 0.0, 2.0, 0.0]
    program = dmm.compile(m, 4)
    assert program.answers(program.start)[:, 0].tolist() == [0.0, 0.0, 2.0, 0.0]


def test_an_activation_that_tells_a_number_from_a_branch_is_refused():
    @dmm.activation(inputs=("x", "y"), outputs=("dict",), name="masked")
    def masked(inputs):
        return {"dict": {trees.NUMBER: trees.max_norm(trees.mask(inputs["y"], inputs["x"]))}}

    @dmm.activation(inputs=("x", "y"), outputs=("dict",), name="looked_up")
    def looked_up(inputs):
        found = inputs["y"].get("a", {})
        return {"dict": {trees.NUMBER: found.get(trees.NUMBER, 0.0) if isinstance(found, dict) else 7.0}}

    for activation in (masked, looked_up):
        message = rf"'{activation.name}' tells a number n in its input 'y' from \{{':number': n\}}, .* 'a' can be both"
        with pytest.raises(MachineError, match=message):
            dmm.compile(paired(activation), 4)


def test_an_activation_that_tells_a_missing_key_from_a_zero_is_refused():
    @dmm.activation(inputs=("x", "y"), outputs=("dict",), name="names")
    def names(inputs):
        return {"dict": {"seen" if inputs["y"] else "nothing": 1.0}}

    @dmm.activation(inputs=("x", "y"), outputs=("dict",), name="powers")
    def powers(inputs):
        return {"dict": trees.map_leaves(jnp.exp, inputs["y"])}

    @dmm.activation(inputs=("x", "y"), outputs=("dict",), name="counted")
    def counted(inputs):
        return {"dict": {trees.NUMBER: float(trees.count(inputs["y"]))}}

    for activation in (names, powers, counted):
        with pytest.raises(
            MachineError, match=rf"'{activation.name}' tells a missing key from a zero, so it cannot"
        ):
            dmm.compile(paired(activation), 4)


def test_an_activation_that_is_not_finite_is_no_such_case():
    @dmm.activation(inputs=("x", "y"), outputs=("dict",), name="inverse")
    def inverse(inputs):
        return {"dict": {trees.NUMBER: jnp.float32(1) / trees.number(inputs["y"])}}

    program = dmm.compile(paired(inverse), 4)
    assert np.isposinf(program.answers(program.start)[-1, 0])
