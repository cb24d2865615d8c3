import json
import math
import time
from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.journal import _tail
from lapwing.journal._json import encode_numbers
from lapwing.journal._tail import Columns, Tail

RECORDS = st.lists(st.dictionaries(st.sampled_from("abc"), st.floats() | st.integers(-5, 5)), max_size=8)


@given(RECORDS, st.integers(0, 200), st.integers(1, 50))
def test_however_the_file_grows_each_record_is_read_once(tmp_path_factory, records, torn_at, block):
    path = tmp_path_factory.mktemp("tail") / "metrics.jsonl"
    content = "".join(encode_numbers(record) + "\n" for record in records).encode()
    tail, columns, read = Tail(path), Columns(Tail(path)), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_tail, "_BLOCK", block)
        for size in sorted({min(torn_at, len(content)), len(content)}):
            path.write_bytes(content[:size])
            read += tail.read()
            assert content[:size].count(b"\n") == len(read)
            final = columns.update()
    np.testing.assert_equal(read, records)
    assert tail.damaged == 0
    expected = {name: [record.get(name, math.nan) for record in records] for r in records for name in r}
    np.testing.assert_equal({name: list(column) for name, column in final.items()}, expected)


def test_following_reads_only_what_is_new(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n' * 1000)
    tail = Tail(path)
    assert len(tail.read()) == 1000
    # The old lines become unreadable; only somebody who reads them again would notice.
    path.write_text("################\n"[:12] * 1000 + '{"step": 2}\n')
    assert tail.read() == [{"step": 2}]
    assert tail.damaged == 0


@pytest.mark.parametrize("wrong", ["{", "5", "[]", "null", "}{", "{\x00}", '"a":1}', "[" * 5000, ""])
def test_a_damaged_line_is_skipped_and_counted(tmp_path: Path, wrong: str):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"a": 1}\n' + wrong + '\n{"a": 2}\n')
    tail = Tail(path)
    assert tail.read() == [{"a": 1}, {"a": 2}]
    assert tail.damaged == 1


def test_two_halves_of_a_torn_line_do_not_become_a_record(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"a": 1\n"b": 2}\n{"c": 3}\n')
    tail = Tail(path)
    assert tail.read() == [{"c": 3}]
    assert tail.damaged == 2


def test_columns_are_filled_up_and_shared_with_numpy(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": "Infinity"}\n{"step": 2, "accuracy": 0.5}\n')
    columns = Columns(Tail(path))
    first = columns.update()
    assert {name: list(column) for name, column in first.items() if name != "loss"} == {
        "step": [1, 2],
        "accuracy": [pytest.approx(math.nan, nan_ok=True), 0.5],
    }
    shared = np.asarray(first["loss"])
    assert shared.dtype == np.float64
    assert shared[0] == math.inf
    with open(path, "a") as file:
        file.write('{"step": 3, "word": "hm", "list": [1], "none": null, "long": -' + "9" * 400 + "}\n")
    second = columns.update()
    assert list(second["step"]) == [1, 2, 3]
    assert all(len(column) == 3 for column in second.values())
    assert second["long"][2] == -math.inf
    assert all(math.isnan(second[name][2]) for name in ("loss", "word", "list", "none"))
    # What was given out before has not changed, also where numpy shares its memory.
    assert list(first["step"]) == [1, 2]
    assert len(shared) == 2


def test_an_unchanged_file_costs_no_copy(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n')
    columns = Columns(Tail(path))
    assert columns.update()["step"] is columns.update()["step"]


def test_the_latest_values_come_from_the_end(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    assert Tail(path).latest() == {}
    rows = [{"step": i, "loss": 1 / (i + 1)} for i in range(5000)]
    rows[4900]["accuracy"] = 0.75
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 9, "lo')
    assert Tail(path).latest() == {"step": 4999, "loss": 1 / 5000, "accuracy": 0.75}
    path.write_text('{"step": 1, "loss": "NaN"}\n')
    assert math.isnan(Tail(path).latest()["loss"])


@pytest.mark.slow
def test_a_million_lines_are_read_in_under_five_seconds(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    line = '{"step": %d, "loss": 0.123456789, "gradient_norm": 1.23456789, "time": 1794727800.123}\n'
    with open(path, "w") as file:
        file.writelines(line % step for step in range(1_000_000))
    # Processor time, which is the time it takes on a machine that has nothing else to do.
    start = time.process_time()
    columns = Columns(Tail(path)).update()
    took = time.process_time() - start
    assert columns["step"] == array("d", range(1_000_000))
    assert list(columns) == ["step", "loss", "gradient_norm", "time"]
    assert took < 5, f"reading a million lines took {took:.1f} s"


def test_rows_from_a_step_that_the_run_went_back_to_are_left_out(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    columns = Columns(Tail(path))
    path.write_text('{"step": 0, "loss": 1}\n{"step": 1, "loss": 2}\n{"step": 2, "loss": 3, "odd": 5}\n')
    before = columns.update()
    with path.open("a") as file:
        file.write('{"step": 3, "loss": 4}\n{"back_to": 1}\n{"step": 1, "loss": 20}\n')
        file.write('{"step": 2, "loss": 30}\n{"back_to": 2}\n{"step": 2, "loss": 300}\n')
    after = columns.update()
    assert list(after["step"]) == [0, 1, 2]
    assert list(after["loss"]) == [1, 20, 300]
    assert list(before["loss"]) == [1, 2, 3]
    assert Tail(path).latest()["step"] == 2
    assert "back_to" not in Tail(path).latest()


def test_going_back_to_what_was_never_logged_changes_nothing(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"back_to": 0}\n{"step": 0, "loss": 1}\n{"back_to": 1}\n')
    assert list(Columns(Tail(path)).update()["loss"]) == [1]
    assert Tail(path).latest() == {"step": 1, "loss": 1}
