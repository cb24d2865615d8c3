import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing import trees
from lapwing.trees import TreeAdam

from .strategies import consistent_trees


def links(number: int) -> dict:
    """A network of so many links, of which two belong to the timer."""
    inner = {("norm", "dict", f"accum-{k}", "dict"): 0.5 for k in range(number - 2)}
    timer = {(to, "timer", "timer", "timer"): 1.0 for to in ("timer", "input")}
    return trees.from_paths({**inner, **timer})


def test_the_state_grows_only_by_what_has_a_gradient():
    network = links(851)
    gradient = {"norm": trees.scale(0.1, network["norm"])}
    adam = TreeAdam()
    state = adam.init()
    assert state.first == state.second == {}
    for _ in range(3):
        network, state = adam.update(gradient, state, network)
    assert (trees.count(network), trees.count(state.first), trees.count(state.second)) == (851, 849, 849)
    assert network["timer"] == links(851)["timer"]


def test_a_pruned_link_does_not_come_back():
    adam = TreeAdam(learning_rate=0.1)
    network = {"a": 1.0, "b": 0.01}
    network, state = adam.update({"a": 1.0, "b": -1.0}, adam.init(), network)
    pruned = trees.prune(network, 0.5)
    assert list(pruned) == ["a"]
    for _ in range(3):
        pruned, state = adam.update({"a": 1.0}, state, pruned)
    assert list(pruned) == ["a"]


def test_momentum_goes_on_where_the_gradient_has_no_key():
    adam = TreeAdam(learning_rate=0.1)
    network, state = adam.update({"a": 1.0}, adam.init(), {"a": 1.0})
    missing, _ = adam.update({}, state, network)
    zero, _ = adam.update({"a": 0.0}, state, network)
    assert missing == zero
    assert missing["a"] < network["a"]


def test_a_gradient_of_something_else_is_refused():
    adam = TreeAdam()
    with pytest.raises(
        trees.TreeError, match=r"gradient has a leaf at 'b'/'c' where the parameters have none"
    ):
        adam.update({"b": {"c": 1.0}}, adam.init(), {"a": 1.0})


@settings(max_examples=25, deadline=None)
@given(consistent_trees(st.floats(-4, 4)), st.lists(st.floats(-2, 2), min_size=1, max_size=4))
def test_it_is_adam(network, factors):
    adam, theirs = TreeAdam(learning_rate=0.01), optax.adam(0.01)
    ours, state = network, adam.init()
    expected, optax_state = network, theirs.init(network)
    for factor in factors:
        gradient = trees.scale(factor, network)
        ours, state = adam.update(gradient, state, ours)
        updates, optax_state = theirs.update(gradient, optax_state)
        expected = optax.apply_updates(expected, updates)
    for path, leaf in trees.paths(ours).items():
        np.testing.assert_allclose(leaf, trees.paths(expected)[path], rtol=1e-4, atol=1e-6)
