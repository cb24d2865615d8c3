"""The compiled program as its user meets it: vectors and trees, options, derivatives, errors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing import dmm, trees
from lapwing.dmm import Machine, MachineError
from lapwing.jaxprs import equations
from tests.slow import some


@functools.cache
def detector(cycles: int = 25, **options) -> dmm.Program:
    return dmm.compile(dmm.duplicate_detector(), cycles, **{"text": "aab.", **options})


def tied_norm() -> Machine:
    """Three keys of the same size reach a norm: by links of a character, of a number and of a constant."""
    m = Machine()
    for name, activation in (
        ("one", dmm.const_1),
        ("dot", dmm.eos),
        ("norm", dmm.norm),
        ("output", dmm.output),
    ):
        m.neuron(name, activation)
    m.link("norm.dict", "one.const_1", 0.5)
    m.link("norm.dict", "dot.char", -0.5)
    m.link("output.dict-1", "norm.norm", 1.0)
    return m


def test_vectors_and_trees_go_both_ways():
    program = detector()
    tree = program.to_tree(program.start)
    assert trees.paths(tree) == trees.paths(program.machine.values)
    assert program.from_tree(tree).tolist() == program.start.tolist()
    assert program.with_params(2 * program.start).matrix["dot"]["dict-1"] == {"accum": {"dict": 2.0}}


def test_a_leaf_missing_from_a_tree_is_zero():
    program = detector()
    pruned = trees.from_paths({program.paths[0]: 1.0})
    assert program.from_tree(pruned).tolist() == [1.0] + [0.0] * 10


def test_fixed_parameters_are_built_in():
    program = detector()
    changed = jnp.where(program.soft, program.start, 7.0)
    answers = jax.jit(program.answers)
    np.testing.assert_array_equal(answers(changed), answers(program.start))
    gradient = jax.jit(jax.grad(program.loss))(1.1 * program.start, jnp.ones((25, 2)))
    assert not gradient[~program.soft].any()
    assert gradient[program.soft].any()


def test_derivatives_of_all_kinds_agree():
    program = detector(cycles=8, period=2)
    params = 1.1 * program.start
    forward, backward = (jax.jit(jacobian(program.answers))(params) for jacobian in (jax.jacfwd, jax.jacrev))
    np.testing.assert_allclose(forward, backward, rtol=1e-5, atol=1e-6)
    hessian = jax.jit(jax.hessian(program.loss))(params, jnp.zeros((8, 2)))
    assert hessian.any()
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-4, atol=1e-4)


def test_vmap_gives_each_machine_its_own_run():
    program = detector()
    many = jnp.stack([program.start, 0.5 * program.start])
    together = jax.jit(jax.vmap(program.answers))(many)
    alone = jax.jit(program.answers)
    for row, params in zip(together, many, strict=True):
        np.testing.assert_allclose(row, alone(params), rtol=1e-6)


@pytest.mark.slow
def test_gradients_against_finite_differences():
    with jax.enable_x64(True):
        start = dmm.random_start(dmm.feedforward_student(layers=2, width=1), jax.random.key(1), 0.4)
        program = dmm.compile(start, 14, text="aab.", period=3, governor=4.0)
        loss = jax.jit(lambda params: program.loss(params, jnp.ones((14, 2))))
        gradient = jax.jit(jax.grad(loss))(program.start)
        for place in np.flatnonzero(program.soft)[::5]:
            step = jnp.zeros_like(program.start).at[place].set(1e-6)
            slope = (loss(program.start + step) - loss(program.start - step)) / 2e-6
            np.testing.assert_allclose(gradient[place], slope, rtol=1e-5, atol=1e-6)


def test_the_wave_moves_for_a_thousand_cycles():
    program = dmm.compile(dmm.wave_machine(), 1000, watch=["self.result"])
    watched = jax.jit(program.watched)(program.start)["self.result"]["self"]["delta"]
    for k in (1, 2, 3):
        expected = (np.arange(1, 1001) % 3 + 1 == k).astype(float)
        np.testing.assert_array_equal(watched[f"update-{k}"]["result"], expected)


@pytest.mark.slow
def test_the_wave_can_be_differentiated():
    wave = dmm.wave_machine()
    program = dmm.compile(wave, 3, watch=["self.result"])

    def strength(params):
        return program.watched(params)["self.result"]["self"]["delta"]["update-1"]["result"][-1]

    def interpreted(params):
        trace = dmm.interpret(wave.with_values(program.to_tree(params)), 3)
        return trace.outputs("self.result")[-1]["self"]["delta"]["update-1"]["result"]

    gradient = jax.jit(jax.grad(strength))(program.start)
    np.testing.assert_allclose(gradient, np.where(program.soft, jax.grad(interpreted)(program.start), 0.0))
    assert gradient.any()


@pytest.mark.parametrize("ties", ["shared", "last"])
def test_ties_for_the_largest_leaf(ties):
    program = dmm.compile(tied_norm(), 4, norm_ties=ties)
    gradient = jax.jit(jax.grad(lambda params: program.answers(params)[-1, 0]))(program.start)
    by_source = {path[-2]: slope for path, slope in zip(program.paths, gradient.tolist(), strict=True)}
    # In key order ".", ":number": the last of the largest is the number.
    expected = {"shared": {"dot": -0.5, "one": 0.5}, "last": {"dot": 0.0, "one": 1.0}}
    assert {name: by_source[name] for name in ("dot", "one")} == expected[ties]


@pytest.mark.parametrize("ties", some(["shared", "last"], 1))
def test_ties_among_keys_of_one_class(ties):
    """Every character was seen once; the weight of the current one, 0, has a gradient only by its share in the tie."""
    machine = dmm.duplicate_detector()
    machine.link("norm.dict", "input.char", 0.0)
    machine.link("output.dict-1", "norm.norm", 1.0)
    program = dmm.compile(machine, 7, text="abcd", period=1, norm_ties=ties)

    def interpreted(params):
        run = dmm.interpret(program.machine.with_values(program.to_tree(params)), 7)
        return sum(run.answers["dict-1"])

    gradient = jax.jit(jax.grad(lambda params: jnp.sum(program.answers(params)[:, 0])))(program.start)
    place = program.paths.index(("matrix", "norm", "dict", "input", "char"))
    assert gradient[place] > 0
    np.testing.assert_allclose(gradient[place], jax.grad(interpreted)(program.start)[place], rtol=1e-6)


def test_ties_in_an_order_of_your_own():
    program = dmm.compile(tied_norm(), 4, norm_ties="last", norm_order=(":number", "."))
    gradient = jax.jit(jax.grad(lambda params: program.answers(params)[-1, 0]))(program.start)
    by_source = {path[-2]: slope for path, slope in zip(program.paths, gradient.tolist(), strict=True)}
    assert (by_source["dot"], by_source["one"]) == (-1.0, 0.0)


def test_no_cycles_and_one():
    none, one = (detector(cycles) for cycles in (0, 1))
    assert jax.eval_shape(none.answers, none.start).shape == (0, 2)
    assert jax.jit(one.answers)(one.start).tolist() == [[0.0, 0.0]]


def test_answers_that_read_nothing_are_zero_for_several_texts():
    m = Machine()
    m.neuron("output", dmm.output)
    program = dmm.compile(m, 3, texts=["ab", "c"])
    assert jax.jit(program.answers)(program.start).tolist() == [[[0.0, 0.0]] * 3] * 2


def test_a_number_that_meets_a_tree():
    """`both.dict` reads a number and a tree at the key "in": the number counts as ":number" there."""

    @dmm.activation(outputs=("dict",), name="deep")
    def deep(inputs):
        return {"dict": {"in": {"a": 2.0}}}

    @dmm.activation(outputs=("dict",), name="shallow")
    def shallow(inputs):
        return {"dict": {"in": 3.0}}

    m = Machine()
    for name, activation in (("deep", deep), ("shallow", shallow), ("accum", dmm.accum), ("norm", dmm.norm)):
        m.neuron(name, activation)
    m.neuron("output", dmm.output)
    m.link("accum.dict-1", "deep.dict", 1.0)
    m.link("accum.dict-2", "shallow.dict", 1.0)
    m.link("norm.dict", "accum.dict", 1.0)
    m.link("norm.dict", "shallow.dict", 0.5)
    m.link("output.dict-1", "norm.norm", 1.0)
    program = dmm.compile(m, 6)
    np.testing.assert_allclose(
        jax.jit(program.answers)(program.start)[:, 0], dmm.interpret(m, 6).answers["dict-1"], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: detector(cycles=-1), "a run has a whole number of cycles, 0 or more, but got -1"),
        (lambda: detector(speed=3), "no activation has an option 'speed'"),
        (lambda: detector(text=None), "the input neuron has no text to read"),
        (lambda: detector(watch=("norm.nrm",)), "no output field norm.nrm to watch; did you mean norm.norm"),
        (lambda: dmm.compile(dmm.wave_machine(), 3), "the machine has no output neuron 'output'"),
        (lambda: detector().answers(jnp.zeros(3)), r"expected 11 parameters.*but got the shape \(3,\)"),
        (
            lambda: detector().from_tree({"matrix": {"x": 1.0}}),
            "a leaf at 'matrix'/'x' that the compiled machine",
        ),
    ],
)
def test_errors_say_what_to_do(make, message):
    with pytest.raises(MachineError, match=message):
        make()


def looping(activation) -> Machine:
    m = Machine()
    m.neuron("again", activation)
    m.neuron("output", dmm.output)
    m.neuron("one", dmm.const_1)
    m.link("again.dict", "again.dict", 1.0)
    m.link("again.dict", "one.const_1", 1.0)
    m.link("output.dict-1", "again.dict", 1.0)
    return m


def test_keys_without_end_are_an_error():
    @dmm.activation(inputs=("dict",), outputs=("dict",), name="deeper")
    def deeper(inputs):
        return {"dict": {"in": inputs["dict"]}}

    @dmm.activation(inputs=("dict",), outputs=("dict",), name="longer")
    def longer(inputs):
        return {"dict": {f"{key}+": value for key, value in inputs["dict"].items()}}

    with pytest.raises(
        MachineError, match=r"keys of again.dict cannot be inferred: they grow deeper in every"
    ):
        dmm.compile(looping(deeper), 3)
    with pytest.raises(
        MachineError, match=r"keys of again.dict cannot be inferred: there are new ones in every"
    ):
        dmm.compile(looping(longer), 3)


@pytest.mark.slow
def test_keys_that_multiply_without_end_are_an_error():
    @dmm.activation(inputs=("dict",), outputs=("dict",), name="wider")
    def wider(inputs):
        return {"dict": {"left": inputs["dict"], "right": inputs["dict"]}}

    with pytest.raises(MachineError, match=r"cannot be inferred: they grow deeper in every"):
        dmm.compile(looping(wider), 3)


def test_a_deep_value_has_an_end():
    def nested(depth: int) -> dict:
        return {"in": nested(depth - 1)} if depth else {"a": 2.0}

    m = dmm.Machine()
    m.neuron("timer", dmm.timer)
    m.neuron("input", dmm.input_text, text=[nested(60), nested(59)], period=1)
    for name, activation in {"sum": dmm.accum, "norm": dmm.norm, "output": dmm.output}.items():
        m.neuron(name, activation)
    m.link("timer.timer", "timer.timer", 1.0, hard=True)
    m.link("input.timer", "timer.timer", 1.0, hard=True)
    m.link("sum.dict-1", "sum.dict", 1.0)
    m.link("sum.dict-2", "input.char", 0.5)
    m.link("norm.dict", "sum.dict", 1.0)
    m.link("output.dict-1", "norm.norm", 1.0)
    program = dmm.compile(m, 8)
    expected = dmm.interpret(m, 8).answers["dict-1"]
    np.testing.assert_allclose(program.answers(program.start)[:, 0], expected)


def test_an_activation_that_returns_an_array_is_an_error():
    @dmm.activation(inputs=("dict",), outputs=("dict",), name="broad")
    def broad(inputs):
        return {"dict": {"a": jnp.zeros(3)}}

    with pytest.raises(MachineError, match=r"'broad' put an array of shape \(3,\) at 'dict', 'a'"):
        dmm.compile(looping(broad), 3)


@pytest.mark.parametrize("machines", some([None, 3], 1))
def test_products_are_in_full_float32_on_a_gpu_too(machines):
    """By default a GPU rounds the numbers of a product to ten bits."""
    program = dmm.compile(dmm.lite_start(), 5, text="aab.", governor=100.0)
    run = program.value_and_grad(lambda params, answers: jnp.sum(answers**2))
    params = program.start if machines is None else jnp.tile(program.start, (machines, 1))
    alone = jax.value_and_grad(lambda params: jnp.sum(program.answers(params) ** 2))
    jaxpr = jax.make_jaxpr(alone if machines is None else run)(params).jaxpr
    products = [eqn for eqn in equations(jaxpr) if eqn.primitive.name == "dot_general"]
    assert products
    assert {eqn.params["precision"] for eqn in products} == {(jax.lax.Precision.HIGHEST,) * 2}
