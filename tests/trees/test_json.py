import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing import trees

from .strategies import any_trees, chain

float32s = st.floats(width=32, allow_nan=False, allow_infinity=False).map(np.float32)


@given(any_trees(float32s), st.sampled_from([None, 1]))
def test_float32_survives_the_round_trip_bit_by_bit(tree, indent):
    before, after = trees.paths(tree), trees.paths(trees.from_json(trees.to_json(tree, indent)))
    assert before.keys() == after.keys()
    for path, leaf in before.items():
        assert np.float32(after[path]).tobytes() == leaf.tobytes()
        assert after[path] == float(leaf)


@given(any_trees(st.floats(allow_nan=False, allow_infinity=False)))
def test_doubles_survive_too(tree):
    assert trees.from_json(trees.to_json(tree)) == tree


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": {"b": "x"}}', r"but 'a'/'b' is 'x' of type str"),
        ('{"a": [1]}', r"but 'a' is \[1.0\] of type list"),
        ('{"a": true}', r"but 'a' is True of type bool"),
        ('{"a": null}', r"but 'a' is None"),
        ('{"a": NaN}', r"only finite numbers, but 'a' is nan"),
        ('{"a": 1', r"expected the JSON text of a tree, but Expecting .* line 1"),
    ],
)
def test_what_is_no_tree_is_refused(text, message):
    with pytest.raises(trees.TreeError, match=message):
        trees.from_json(text)


def test_infinity_is_not_written():
    with pytest.raises(trees.TreeError, match=r"but 'a'/'b' is inf; replace or prune it"):
        trees.to_json({"a": {"b": float("inf")}})


def attempt(function, value) -> str:
    try:
        function(value)
    except trees.TreeError as error:
        return str(error)
    return "done"


@pytest.mark.parametrize("depth", [10_000, 100_000])
def test_a_deep_tree_passes_or_gets_a_clear_error(depth):
    """How deep the json module goes depends on the version of Python."""
    outcomes = [
        attempt(trees.to_json, chain(depth)),
        attempt(trees.from_json, '{"a":' * depth + "1" + "}" * depth),
    ]
    assert all(outcome == "done" or "nested too deeply for JSON" in outcome for outcome in outcomes)
