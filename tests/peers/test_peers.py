"""The runner of other people's tests: what it compares, what it excepts, and that it continues where it was."""

import json
import textwrap
from pathlib import Path

import pytest

from tests.peers.__main__ import Log, Suite, _last_line, compare, main, read_exceptions, reason_for, summary
from tests.peers.replaced import family_of

ROWS = [
    {"test": "jax/a_test.py::A::test_x", "loops": True, "outcome": "passed", "message": ""},
    {"test": "jax/a_test.py::A::test_y0", "loops": True, "outcome": "failed", "message": "E   worse"},
    {"test": "jax/a_test.py::A::test_z", "loops": False, "outcome": "passed", "message": ""},
    {"test": "haiku/b_test.py::test_w", "loops": True, "outcome": "failed", "message": "E   wrong"},
]


def test_the_summary_counts_what_is_excepted_apart():
    found = summary(ROWS, {"jax/a_test.py::A::test_y*": "reads a jaxpr"})
    assert found["suites"] == {
        "jax": {"passed as written": 3, "with a loop": 2, "passed replaced": 2, "excepted": 1},
        "haiku": {"passed as written": 1, "with a loop": 1, "failed": 1},
    }
    assert [row["test"] for row in found["failures"]] == ["haiku/b_test.py::test_w"]


def test_every_exception_has_a_reason(tmp_path: Path):
    assert all(len(reason) > 10 for reason in read_exceptions().values())
    (tmp_path / "exceptions.txt").write_text(
        "# why\njax/a_test.py::test_x  reads a jaxpr\njax/b_test.py::test_y\n"
    )
    with pytest.raises(
        SystemExit, match=r"a test and a reason, but there is none for jax/b_test\.py::test_y"
    ):
        read_exceptions(tmp_path / "exceptions.txt")


def test_a_family_of_tests_is_excepted_by_its_beginning():
    exceptions = {"jax/a.py::test_x*": "why"}
    assert reason_for("jax/a.py::test_x1", exceptions) == "why"
    assert reason_for("jax/a.py::test_y", exceptions) is None


@pytest.mark.parametrize("end", ["7", "[a-1]", "[a=1]", "_jit_scan=False_impl=new"])
def test_a_family_is_a_test_without_its_parameters(end):
    other = end.translate(str.maketrans("17", "28")).replace("False", "True")
    first, second = (family_of("a_test.py::A::test_x" + each) for each in (end, other))
    assert first == second
    assert first.startswith("a_test.py::A::test_x")
    assert first != family_of("a_test.py::A::test_y" + end)


def test_a_log_of_another_release_is_begun_anew(tmp_path: Path):
    log = Log(tmp_path / "log.jsonl", "jax 1")
    log.begin()
    log.add(started="a")
    log.add(test="a", outcome="passed", loops=1)
    log.add(started="b")
    assert set(log.outcomes) == {"a"}
    assert log.unfinished() == "b"
    assert not Log(tmp_path / "log.jsonl", "jax 2").outcomes


def test_the_error_is_what_pytest_marks():
    assert (
        _last_line("def test():\n>   f()\nE   KeyError: 'x'\nE   more\n\nfile.py:3: KeyError")
        == "KeyError: 'x'"
    )
    assert _last_line("ran too long") == "ran too long"


def test_an_unknown_package_says_what_to_write():
    with pytest.raises(SystemExit, match=r"nosuchpackage is not installed; .* nosuchpackage=PATH"):
        main(["nosuchpackage"])


@pytest.mark.slow
def test_a_difference_is_found_and_a_crash_is_survived(tmp_path: Path, capsys):
    """Two processes: one test that only the replaced scan fails, one that kills the process, one without a loop."""
    file = tmp_path / "checkout" / "tests" / "some_test.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        textwrap.dedent("""
            import os
            import jax
            import jax.numpy as jnp
            from jax.lax import scan

            def total():
                return scan(lambda c, x: (jnp.sin(c) + x, None), 0.0, jnp.ones(3))[0]

            def test_same():
                assert total() > 0

            def test_knows_the_difference():
                total()
                assert "replaced" not in scan.__code__.co_filename

            def test_crashes():
                total()
                os._exit(3)

            def test_no_loop():
                assert True
        """)
    )
    suite = Suite("some", file.parent, [file])
    rows = {row["test"].rpartition("::")[2]: row for row in compare(suite, tmp_path / "out", 60)}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "test_same": "passed",
        "test_knows_the_difference": "failed",
        "test_no_loop": "passed",
    }
    assert not rows["test_no_loop"]["loops"]
    plain = (tmp_path / "out/some/some_test.plain.jsonl").read_text()
    crashed = [json.loads(line) for line in plain.splitlines() if "ended with status 3" in line]
    assert [each["test"] for each in crashed] == ["some_test.py::test_crashes"]
    assert compare(suite, tmp_path / "out", 60) == list(rows.values())
