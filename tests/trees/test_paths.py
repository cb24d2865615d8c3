import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing import trees

from .strategies import any_trees, consistent_trees, numbers


@given(any_trees())
def test_paths_and_back(tree):
    assert trees.from_paths(trees.paths(tree)) == tree


@given(any_trees())
def test_the_order_is_that_of_jax(tree):
    assert list(trees.paths(tree).values()) == jax.tree.leaves(tree)


def test_a_leaf_cannot_be_a_branch():
    with pytest.raises(trees.TreeError, match="'a' cannot be a leaf and a branch at once"):
        trees.from_paths({("a",): 1.0, ("a", "b"): 2.0})
    with pytest.raises(trees.TreeError, match="'a' cannot be a leaf and a branch at once"):
        trees.from_paths({("a", "b"): 2.0, ("a",): 1.0})


@given(any_trees(), st.integers(0, 9))
def test_prune_keeps_exactly_the_large_leaves(tree, threshold):
    pruned = trees.prune(tree, threshold)
    assert trees.paths(pruned) == {p: x for p, x in trees.paths(tree).items() if abs(x) >= threshold}
    assert trees.prune(pruned, threshold) == pruned


def test_prune_drops_empty_branches_and_keeps_nan():
    assert trees.prune({"x": {"y": {"a": 0.1}}, "b": 0.5, "z": {}}, 0.5) == {"b": 0.5}
    assert list(trees.prune({"a": float("nan"), "b": 0.1}, 0.5)) == ["a"]


@given(any_trees())
def test_a_tree_does_not_differ_from_itself(tree):
    assert trees.diff(tree, tree) == []


@given(consistent_trees(), consistent_trees())
def test_diff_tells_exactly_how_to_get_from_one_to_the_other(left, right):
    changed = trees.paths(left)
    for path, _, new in trees.diff(left, right):
        changed.pop(path, None)
        if new is not None:
            changed[path] = new
    assert changed == trees.paths(right)


def test_diff_with_a_tolerance():
    assert trees.diff({"a": 1.0}, {"a": 1.01}, tolerance=0.1) == []
    assert trees.diff({"a": 1.0}, {"a": 1.2}, tolerance=0.1) == [(("a",), 1.0, 1.2)]
    assert trees.diff({"a": float("inf")}, {"a": float("inf")}) == []
    assert trees.diff({"a": float("nan")}, {"a": float("nan")}) == []
    assert len(trees.diff({"a": float("nan")}, {"a": 1.0}, tolerance=9.0)) == 1


matrices = st.dictionaries(st.tuples(*[st.sampled_from("abc")] * 4), numbers, max_size=6).map(
    trees.from_paths
)


@given(matrices)
def test_transposing_twice_gives_the_matrix_back(matrix):
    assert trees.transpose(trees.transpose(matrix)) == matrix


def test_only_a_matrix_can_be_transposed():
    with pytest.raises(trees.TreeError, match=r"four keys deep, but the one at 'a'/'b' is 2 deep"):
        trees.transpose({"a": {"b": 1.0}})
