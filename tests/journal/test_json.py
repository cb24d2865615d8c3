import dataclasses
import enum
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.journal._json import decode, encode, encode_columns, encode_numbers

TEXTS = st.text() | st.sampled_from(["NaN", "Infinity", "-Infinity", "\\NaN", "\\\\-Infinity", "nan"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=20,
)


def refuse(word: str):
    raise AssertionError(f"{word} is not JSON")


def same(a, b) -> bool:
    """Equality that tells types apart and calls NaN equal to NaN."""
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@given(VALUES)
def test_every_value_comes_back_as_it_was(value):
    assert same(decode(encode(value)), value)


@given(VALUES)
def test_what_is_written_is_one_line_that_strict_readers_take(value):
    line = encode(value)
    assert "\n" not in line
    json.loads(line, parse_constant=refuse)


@given(st.dictionaries(st.text(), st.integers() | st.floats()))
def test_the_quick_way_for_numbers_writes_the_same(record):
    assert encode_numbers(record) == encode(record)


def test_not_finite_numbers_are_words():
    line = encode_numbers({"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.5})
    assert json.loads(line) == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 1.5}


def test_scalars_of_array_libraries_are_numbers():
    assert encode_numbers({"loss": np.float32(0.5), "step": np.int64(3)}) == '{"loss": 0.5, "step": 3}'
    assert encode_numbers({"loss": np.float32("nan")}) == '{"loss": "NaN"}'


@pytest.mark.parametrize("wrong", ["high", None, [1.0], np.zeros(2)])
def test_a_metric_that_is_not_a_number_is_named(wrong):
    with pytest.raises(TypeError, match=r"the metric 'loss' is .* but a metric is one number"):
        encode_numbers({"loss": wrong})


def test_settings_of_usual_types_are_plain_data():
    class Colour(enum.Enum):
        RED = "red"

    @dataclasses.dataclass(frozen=True)
    class Inner:
        learning_rate: float
        where: Path

    value = {"inner": Inner(math.inf, Path("a/b")), "colour": Colour.RED, "shape": (1, 2), "array": np.eye(2)}
    assert decode(encode(value)) == {
        "inner": {"learning_rate": math.inf, "where": "a/b"},
        "colour": "red",
        "shape": [1, 2],
        "array": [[1.0, 0.0], [0.0, 1.0]],
    }


def test_what_json_cannot_hold_is_named_by_its_path():
    with pytest.raises(TypeError, match=r"^model\.layers\.1 is a function, which JSON cannot hold; give"):
        encode({"model": {"layers": [1, test_what_json_cannot_hold_is_named_by_its_path]}})


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.floats(), st.floats(width=32)), max_size=20),
    st.text(max_size=9),
)
def test_columns_are_written_as_rows_are(rows, name):
    names = ["step", "loss", name] if name not in ("step", "loss", "time") else ["step", "loss", "norm"]
    columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(names, ())
    expected = [encode_numbers({**dict(zip(names, row, strict=True)), "time": 1.5}) for row in rows]
    assert list(encode_columns(columns, time=1.5)) == expected


def test_columns_may_be_arrays():
    found = list(
        encode_columns({"step": range(2), "loss": np.float32([0.5, np.inf]), "kept": np.array([True, False])})
    )
    assert found == [
        '{"step": 0, "loss": 0.5, "kept": true}',
        '{"step": 1, "loss": "Infinity", "kept": false}',
    ]


@given(st.lists(st.sampled_from([0.1, -0.0, 0.0, 3.0, 1e-38, 1e30]), max_size=4))
def test_columns_of_float32_are_read_back_to_the_bit_whether_they_change_or_not(values):
    column = np.float32(values)
    rows = encode_columns({"step": range(len(values)), "50%": column, "n": np.full(len(values), 7, np.int32)})
    assert np.array_equal(np.float32([decode(row)["50%"] for row in rows]), column)
    assert [(row["step"], row["n"]) for row in map(decode, rows)] == [(k, 7) for k in range(len(values))]


def test_a_column_of_texts_is_an_error():
    with pytest.raises(TypeError, match="the metric 'loss' is 'low', but a metric is one number"):
        list(encode_columns({"loss": ["low"]}))
