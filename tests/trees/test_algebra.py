import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing import trees

from .strategies import any_trees, chain, consistent_trees, numbers

A = {"a": 2.0, "b": 3.0, "c": 2.5}
F = {"a": 2.0, "b": 3.0, "c": {":number": 6.0, "u": 1.0}}


@pytest.mark.parametrize(
    ("weights", "value", "expected"),
    [(A, A, 19.25), (F, F, 50.0), (A, F, {":number": 28.0, "u": 2.5}), (F, A, 13.0)],
)
def test_the_published_examples_of_lincomb(weights, value, expected):
    assert trees.lincomb(weights, value) == expected


def test_lincomb_of_nothing_is_the_empty_tree():
    assert trees.lincomb({"a": 1.0}, {"b": 1.0}) == {}
    assert trees.lincomb({}, {"b": 1.0}) == {}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((), {}),
        (({"a": 1.0}, {"b": 2.0}), {"a": 1.0, "b": 2.0}),
        ((1.0, {"a": 2.0}, 3.0), {":number": 4.0, "a": 2.0}),
        (({"a": 1.0}, {"a": {"u": 2.0}}), {"a": {":number": 1.0, "u": 2.0}}),
        (({"a": {":number": {"u": 2.0}}}, {"a": 1.0}), {"a": {":number": {"u": 2.0, ":number": 1.0}}}),
        ((1.0, {}), 1.0),
    ],
)
def test_add(values, expected):
    assert trees.add(*values) == expected


def test_add_leaves_its_arguments_alone():
    left, right = {"x": {"a": 1.0}}, {"x": {"a": 2.0, "b": 1.0}}
    total = trees.add(left, right)
    total["x"]["a"] = 100.0
    assert (left, right) == ({"x": {"a": 1.0}}, {"x": {"a": 2.0, "b": 1.0}})


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (2.0, {"a": 4.0, "b": 6.0, "c": {":number": 12.0, "u": 2.0}}),
        ({"c": 3.0}, {"c": {":number": 18.0, "u": 3.0}}),
        ({"c": {"u": 3.0}, "z": 1.0}, {"c": {"u": 3.0}}),
        ({"a": {"u": 3.0}}, {}),
        ({"c": {"z": 3.0}}, {}),
    ],
)
def test_mask(weights, expected):
    assert trees.mask(weights, F) == expected


@given(any_trees(), any_trees())
def test_add_is_commutative(a, b):
    assert trees.add(a, b) == trees.add(b, a)


@given(any_trees(), any_trees(), any_trees())
def test_add_is_associative(a, b, c):
    assert trees.add(trees.add(a, b), c) == trees.add(a, trees.add(b, c)) == trees.add(a, b, c)


@given(any_trees())
def test_the_empty_tree_is_the_zero(a):
    assert trees.add(a, {}) == trees.add({}, a) == a


@given(numbers, any_trees(), any_trees())
def test_scale_distributes_over_add(c, a, b):
    assert trees.scale(c, trees.add(a, b)) == trees.add(trees.scale(c, a), trees.scale(c, b))


@given(numbers, numbers, any_trees())
def test_scale_distributes_over_numbers(c, d, a):
    assert trees.scale(c + d, a) == trees.add(trees.scale(c, a), trees.scale(d, a))
    assert trees.scale(c * d, a) == trees.scale(c, trees.scale(d, a))


@given(consistent_trees(), consistent_trees(), consistent_trees())
def test_lincomb_is_linear_in_its_value(m, a, b):
    assert trees.lincomb(m, trees.add(a, b)) == trees.add(trees.lincomb(m, a), trees.lincomb(m, b))


def without_number_keys(tree):
    if not isinstance(tree, dict):
        return tree
    return {key: without_number_keys(child) for key, child in tree.items() if key != trees.NUMBER}


@given(any_trees().map(without_number_keys), any_trees(), any_trees())
def test_lincomb_is_linear_where_leaves_meet_branches(m, a, b):
    assert trees.lincomb(m, trees.add(a, b)) == trees.add(trees.lincomb(m, a), trees.lincomb(m, b))


@given(consistent_trees(), consistent_trees(), consistent_trees())
def test_lincomb_and_mask_are_linear_in_their_weights(m, n, a):
    assert trees.lincomb(trees.add(m, n), a) == trees.add(trees.lincomb(m, a), trees.lincomb(n, a))
    assert trees.mask(trees.add(m, n), a) == trees.add(trees.mask(m, a), trees.mask(n, a))


@given(any_trees(), any_trees())
def test_lincomb_is_the_sum_of_the_mask(m, a):
    total = sum(trees.paths(trees.mask(m, a)).values())
    assert sum(trees.paths(trees.lincomb(m, a)).values()) == total


@given(any_trees(), any_trees(), numbers)
def test_max_norm_is_a_norm(a, b, c):
    assert trees.max_norm(trees.scale(c, a)) == abs(c) * trees.max_norm(a)
    assert trees.max_norm(trees.add(a, b)) <= trees.max_norm(a) + trees.max_norm(b)


@given(any_trees(st.integers(-8, 8).map(np.float32)))
def test_numpy_numbers_stay_what_they_are(a):
    doubled = trees.add(a, trees.scale(np.float32(1), a))
    assert {leaf.dtype for leaf in trees.paths(doubled).values()} <= {np.dtype("float32")}


def test_the_algebra_can_be_differentiated():
    gradient = jax.grad(lambda m: trees.lincomb(m, A))({"a": 1.0, "c": 1.0})
    assert gradient == {"a": 2.0, "c": 2.5}
    assert jax.jit(trees.add)({"a": jnp.float32(1)}, {"a": jnp.float32(2)}) == {"a": 3.0}


def test_number_reads_through_number_keys():
    assert trees.number({":number": {":number": 3.0}}) == 3.0
    assert trees.number({"a": 1.0}) == 0.0


DEEP = 10_000


@pytest.mark.parametrize(
    ("result", "leaf"),
    [
        (lambda t: trees.add(t, t), 2.0),
        (lambda t: trees.scale(3.0, t), 3.0),
        (lambda t: trees.mask(t, t), 1.0),
        (lambda t: trees.prune(t, 0.5), 1.0),
        (lambda t: trees.map_leaves(abs, t), 1.0),
    ],
    ids=["add", "scale", "mask", "prune", "map_leaves"],
)
def test_ten_thousand_levels_do_not_overflow(result, leaf):
    assert trees.paths(result(chain(DEEP))) == {("a",) * DEEP: leaf}


def test_ten_thousand_levels_can_be_measured():
    deep = chain(DEEP, leaf=-2.0)
    assert trees.max_norm(deep) == 2.0
    assert trees.count(deep) == 1
    assert trees.lincomb(deep, deep) == 4.0
    assert [found.left for found in trees.diff(deep, chain(DEEP))] == [-2.0]


@pytest.mark.parametrize("bad", ["x", None, [1.0], True, np.str_("x")])
@pytest.mark.parametrize(
    "function",
    [
        lambda t: trees.add(t, t),
        lambda t: trees.scale(2.0, t),
        lambda t: trees.mask(2.0, t),
        lambda t: trees.lincomb(t, {"a": {"b": 1.0}}),
        trees.max_norm,
        trees.count,
        trees.to_json,
    ],
)
def test_a_leaf_that_is_no_number_is_named_by_its_path(function, bad):
    with pytest.raises(trees.TreeError, match=r"numbers at its leaves, but 'a'/'b' is .* of type"):
        function({"a": {"b": bad}})


def test_a_key_that_is_no_string_is_named():
    with pytest.raises(
        trees.TreeError, match=r"string keys, but under 'a' is the key 1 of type int; write '1'"
    ):
        trees.count({"a": {1: 2.0}})
