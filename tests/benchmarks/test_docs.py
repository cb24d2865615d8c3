"""The page about silent bugs: its code runs and prints what it shows, and its tables are those of the results."""

import importlib.util
from pathlib import Path

import jax
import pytest

from tests.docs import run_page

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "silent-bugs.md"
spec = importlib.util.spec_from_file_location("silent_bugs_table", DOCS / "silent_bugs_table.py")
assert spec is not None
assert spec.loader is not None
silent_bugs_table = importlib.util.module_from_spec(spec)
spec.loader.exec_module(silent_bugs_table)


@pytest.mark.slow
def test_the_page_runs_and_prints_what_it_shows():
    with jax.numpy_rank_promotion("allow"):
        for block in run_page(PAGE, {}):
            assert block.printed.split() == block.shown.split(), block.code


def test_the_tables_are_those_of_the_results():
    text = PAGE.read_text(encoding="utf-8")
    assert silent_bugs_table.page(text) == text, "`python docs/silent_bugs_table.py` makes them again"


def test_a_false_alarm_is_listed():
    run = {"failed": [], "crash": "", "seconds": 1.0, "cpu": 1.0, "cpu_without_compiling": 0.5, "skipped": []}
    alarm = run | {"failed": [{"check": "scale", "detail": "it grows. Look at it"}]}
    assert silent_bugs_table.alarms({"bugs": [], "clean": [{"name": "good", **run}]}) == [
        "There is no false alarm."
    ]
    shown = silent_bugs_table.alarms({"bugs": [], "clean": [{"name": "good", **alarm}]})
    assert shown[-1] == "- good: `scale`: it grows"
