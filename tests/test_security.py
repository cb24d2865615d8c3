"""SECURITY.md names the test that holds each of its points; each of them exists."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "SECURITY.md"


def test_every_test_that_the_page_names_exists():
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))
    defined = {
        name for file in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", file.read_text())
    }
    assert len(named) > 20
    assert named <= defined


def test_every_point_has_a_test():
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    points = [row for row in rows if not row.endswith("| test |")]
    assert len(points) > 15
    assert [row for row in points if "`test_" not in row.rpartition(" | ")[2]] == []
