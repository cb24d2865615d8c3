"""What an activation is, and the law that every built-in one keeps."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing import dmm, trees
from lapwing.dmm._activation import REGISTRY
from tests.slow import slow, some

from . import strategies


def test_missing_fields_are_empty_and_unknown_ones_are_not_seen():
    @dmm.activation(inputs=("x",), outputs=("seen",))
    def look(inputs):
        return {"seen": float(len(inputs["x"]) + 10 * len(inputs))}

    assert look({"y": {"a": 1.0}}) == {"seen": {":number": 10.0}}


def test_keyword_parameters_are_options():
    @dmm.activation(outputs=("number",))
    def tell(inputs, number=1.0):
        return {"number": number}

    assert tell({}) == {"number": {":number": 1.0}}
    assert tell.with_options(number=2.0)({}) == {"number": {":number": 2.0}}
    assert tell({}) == {"number": {":number": 1.0}}


def test_a_renamed_activation_keeps_its_options():
    truncated = dmm.accum_add_args.with_options(accumulator_gradient="truncated")
    assert dmm.accum_add_args.accumulator
    gradient = jax.grad(lambda x: truncated({"accum": {"a": x}, "delta": {"a": 2 * x}})["result"]["a"])(1.0)
    assert gradient == 2.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda: dmm.dot.with_options(govenor=3),
            r"'dot' has no option 'govenor'; did you mean governor\?",
        ),
        (
            lambda: dmm.accum.with_options(accumulator_gradient="none"),
            r"'accumulator_gradient' of 'accum' is 'full' or 'truncated', but got 'none'",
        ),
        (
            lambda: dmm.activation(name="dot")(lambda inputs: {}),
            r"there is already an activation 'dot' in Lapwing; choose another name",
        ),
        (lambda: dmm.find_activation("acum"), r"there is no activation 'acum'; did you mean accum\?"),
        (
            lambda: dmm.activation(name="bad-1")(lambda inputs, limit: {}),
            r"the option 'limit' of .* needs a default; write limit=None",
        ),
        (
            lambda: dmm.activation(name="bad-2", outputs=("true",))(lambda inputs: {"ture": 1.0})({}),
            r"'bad-2' returned 'ture', which is none of its outputs; did you mean true\?",
        ),
        (
            lambda: dmm.activation(name="bad-3", outputs=("true",))(lambda inputs: 1.0)({}),
            r"'bad-3' must return a dict from output field to V-value, but returned 1.0; write {'true': ...}",
        ),
        (lambda: dmm.input_text({}), r"has no text to read; pass one to the run, like text='test string.'"),
    ],
)
def test_errors(wrong, message):
    with pytest.raises(dmm.MachineError, match=message):
        wrong()


def test_input_reads_a_character_every_ten_ticks_and_the_last_one_for_ever():
    read = dmm.input_text.with_options(text="ab")
    seen = {tick: read({"timer": float(tick)})["char"] for tick in (-10, 0, 1, 9, 10, 15, 20, 500)}
    assert {tick: char for tick, char in seen.items() if char} == {
        0: {"a": 1.0},
        10: {"b": 1.0},
        20: {"b": 1.0},
        500: {"b": 1.0},
    }


@pytest.mark.parametrize(
    "tick", some([-10.0, -1.0, 0.0, 1.0, 9.0, 10.0, 19.0, 20.0, 30.0, 35.0, 80.0], 0, 2, 6, 9)
)
def test_input_under_a_trace_gives_the_same_v_value(tick):
    read = dmm.input_text.with_options(text="aba.")
    traced = jax.jit(read)({"timer": {":number": tick}})["char"]
    assert set(traced) == {"a", "b", "."}
    assert trees.prune(traced, 0.5) == read({"timer": {":number": tick}})["char"]


def test_no_gradient_flows_into_the_choice_of_the_character():
    read = dmm.input_text.with_options(text="ab")

    def first(tick):
        return trees.max_norm(read({"timer": tick})["char"]) + 0 * tick

    assert jax.grad(first)(10.0) == 0.0


def test_the_governor_stops_value_and_gradient():
    def squared(x, **options):
        return dmm.dot.with_options(**options)({"dict-1": {"a": x}, "dict-2": {"a": x}})["dot"][":number"]

    assert squared(3.0) == 9.0
    assert squared(3.0, governor=4.0) == 4.0
    assert jax.grad(squared)(3.0, governor=4.0) == 0.0
    assert jax.grad(squared)(1.5, governor=4.0) == 3.0
    assert dmm.dot.with_options(governor=4.0)({"dict-1": {"a": -3.0}, "dict-2": {"a": 3.0}}) == {
        "dot": {":number": -4.0}
    }


def test_dot_counts_only_numbers_at_shared_places():
    left = {"a": 2.0, "b": {"c": 3.0}, "d": 5.0, "e": 7.0}
    right = {"a": 10.0, "b": {"c": 10.0}, "d": {"x": 1.0}}
    assert dmm.dot({"dict-1": left, "dict-2": right}) == {"dot": {":number": 50.0}}


def norm_gradient(values: dict[str, float], **options):
    norm = dmm.norm.with_options(**options)
    return jax.grad(lambda tree: norm({"dict": tree})["norm"][":number"])(values)


def test_a_tie_in_norm_is_shared_or_goes_to_the_last():
    tied = {"a": 2.0, "b": -2.0, "c": 1.0}
    assert norm_gradient(tied) == {"a": 0.5, "b": -0.5, "c": 0.0}
    assert norm_gradient(tied, norm_ties="last") == {"a": 0.0, "b": -1.0, "c": 0.0}
    assert norm_gradient(tied, norm_ties="last", norm_order=("b", "a")) == {"a": 1.0, "b": 0.0, "c": 0.0}
    assert norm_gradient(tied, norm_ties="last", norm_order=("a",)) == {"a": 1.0, "b": 0.0, "c": 0.0}


def test_compare_has_no_gradient_where_it_is_flat():
    def true(x):
        return dmm.compare({"dict-1": x, "dict-2": 1.0})["true"][":number"]

    assert [jax.grad(true)(x) for x in (0.5, 1.0, 1.5)] == [0.0, 0.0, 1.0]


BUILT_IN = [a for a in REGISTRY.values() if a.function.__module__.startswith("lapwing.dmm")]
KEYS = ["a", "b", trees.NUMBER]
sparse = st.dictionaries(st.sampled_from(KEYS), st.floats(-3, 3, width=32, allow_subnormal=False), max_size=3)


# How many are built in depends on what other tests have imported.
QUICK = {"accum", "norm", "dot", "compare", "timer", "input", "output", "squash", "gate"}
FUNCTIONS = [
    each if each.name in QUICK else slow(each) for each in (*BUILT_IN, strategies.squash, strategies.gate)
]


def configured(activation: dmm.Activation) -> dmm.Activation:
    return activation.with_options(text="ab.") if "text" in activation.options else activation


@pytest.mark.parametrize(
    "activation",
    FUNCTIONS,
    ids=lambda a: a.name,
)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_missing_key_and_a_zero_leaf_mean_the_same(activation, data):
    activation = configured(activation)
    inputs = {field: data.draw(sparse) for field in activation.inputs}
    filled = {field: {**dict.fromkeys(KEYS, 0.0), **tree} for field, tree in inputs.items()}
    assert distance(activation(inputs), activation(filled)) < 1e-6


@pytest.mark.parametrize(
    "activation",
    FUNCTIONS,
    ids=lambda a: a.name,
)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_floats_and_traced_numbers_give_the_same(activation, data):
    activation = configured(activation)
    inputs = {field: data.draw(sparse) for field in activation.inputs}
    traced = jax.jit(activation)(
        {field: {k: jnp.float32(v) for k, v in t.items()} for field, t in inputs.items()}
    )
    assert distance(activation(inputs), traced) < 1e-4


def distance(a, b) -> float:
    """The largest difference of two V-values, where a missing key is zero."""
    return trees.max_norm(trees.add(a, trees.scale(-1.0, b)))
