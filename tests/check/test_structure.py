"""Entries of Adam's state that leaked into a pruned network (docs/story.md)."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing import trees
from lapwing.check import CheckError, CheckInputError, structure

MATRIX = {"norm-5": {"dict": {"accum-5": {"dict": -0.2}, "accum-2": {"dict": 0.2}}}, "dot-2": {"true": 0.008}}


def adam_step(matrix: dict, first: dict, leak: bool) -> dict:
    """A step of a tree-valued Adam; with the leak, the whole state is added and not the leaves of the matrix alone."""
    moved = dict.fromkeys(trees.paths(first if leak else matrix), 0.1)
    return trees.add(matrix, trees.from_paths(moved))


def test_optimizer_state_that_leaks_into_a_pruned_tree_is_named_by_path():
    state = trees.scale(0.0, MATRIX)
    pruned = trees.prune(MATRIX, 0.1)
    assert structure(before=pruned, after=adam_step(pruned, state, leak=False)).facts == {"leaves": 2}
    with pytest.raises(
        CheckError, match=r"after has \['dot-2'\]\['true'\] \(.*float.*\), which before does not have"
    ):
        structure(before=pruned, after=adam_step(pruned, state, leak=True))


def test_a_state_of_other_parameters_is_found_beside_a_fresh_one():
    optimizer, params = optax.adam(1e-3), {"w": jnp.zeros((2, 3)), "b": jnp.zeros(3)}
    old = optimizer.init({"w": jnp.zeros((2, 3))})
    structure(fresh=optimizer.init(params), restored=optimizer.init(params))
    with pytest.raises(CheckError) as caught:
        structure(fresh=optimizer.init(params), restored=old)
    assert caught.value.check == "structure"
    assert caught.value.where == (
        "restored lacks [0].mu['b'] (float32[3])",
        "restored lacks [0].nu['b'] (float32[3])",
    )


def test_the_third_tree_is_compared_with_the_first():
    good, bad = {"w": np.zeros(3)}, {"w": np.zeros((3, 1))}
    with pytest.raises(CheckError, match=r"\['w'\] is float64\[3,1\] in mu and float64\[3\] in params"):
        structure(params=good, gradient=good, mu=bad)


def test_a_gradient_of_another_precision_is_found():
    with pytest.raises(CheckError, match=r"the top is bfloat16\[3\] in gradient and float32\[3\] in params"):
        structure(params=jnp.zeros(3), gradient=jnp.zeros(3, jnp.bfloat16))


def test_a_list_where_a_tuple_was_is_found_although_the_leaves_agree():
    with pytest.raises(CheckError, match=r"\['b'\] is a list in restored and a tuple in state"):
        structure(state={"a": 1.0, "b": (1.0, 2.0)}, restored={"a": 1.0, "b": [1.0, 2.0]})


def test_every_place_is_known_though_the_message_is_short():
    with pytest.raises(CheckError, match="and 12 more") as caught:
        structure(params={str(i): 1.0 for i in range(20)}, gradient={})
    assert len(caught.value.where) == 20


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"x": 1.0}, {"x": np.float32(2)}),
        ({"x": jnp.ones(2)}, {"x": np.ones(2, np.float32)}),
        ({"x": jnp.ones(2)}, jax.eval_shape(lambda: {"x": jnp.ones(2)})),
        (collections.OrderedDict(x=1.0), {"x": 1.0}),
        (1.0, jnp.bfloat16(1)),
    ],
)
def test_leaves_of_different_libraries_fit(one, other):
    structure(one=one, other=other)


def test_torch_tensors_are_compared_without_importing_torch():
    torch = pytest.importorskip("torch")
    with pytest.raises(CheckError, match=r"\['w'\] is float32\[2,3\] in b and float32\[3,2\] in a"):
        structure(a={"w": torch.zeros(3, 2)}, b={"w": torch.zeros(2, 3)})


def test_one_tree_has_nothing_to_be_compared_with():
    with pytest.raises(CheckInputError, match="expected two trees or more by name, found 1"):
        structure(params={})
