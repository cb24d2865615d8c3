"""The tables about robustness are those that were measured."""

import importlib.util
import json
from pathlib import Path

import pytest

from tests.docs import DOCS

spec = importlib.util.spec_from_file_location("robustness_tables", DOCS / "robustness_tables.py")
assert spec is not None
assert spec.loader is not None
tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tables)


@pytest.mark.parametrize("path", tables.PAGES, ids=lambda path: path.name)
def test_the_tables_are_those_that_were_measured(path: Path):
    text = path.read_text(encoding="utf-8")
    assert "<!-- end -->" in text
    assert tables.page(text, tables.RESULTS) == text, "`python docs/robustness_tables.py` makes them again"


def test_a_table_takes_the_place_of_the_last_one(tmp_path: Path):
    def found(share: float) -> dict:
        return {"accuracy": {"square": share, "total": share}, "seconds": {"square": 3.4}}

    def row(seed: int, here: float, there: float) -> dict:
        about = {"network": "weak", "norm": "l1", "eps": 5.0, "seed": seed}
        only = {"square": [1, 2], "total": [3, 4]}
        return {**about, "lapwing": found(here), "original": found(there), "fell_to_one_only": only}

    rows = [row(0, 0.25, 0.5), row(1, 0.3, 0.4)]
    (tmp_path / "some-cpu.json").write_text(json.dumps({"rows": rows}))
    marked = "before\n<!-- {}: some-cpu -->\nold\n<!-- end -->\nafter\n"
    both = tables.page(marked.format("beside"), tmp_path)
    assert "| weak, L1 5 | 25.0 / 50.0 | 25.0 / 50.0 | 3 / 4 | 3 / 3 |\n" in both
    assert (both.startswith("before\n"), both.endswith("\nafter\n"), "old" in both) == (True, True, False)
    assert tables.page(both, tmp_path) == both
    spread = tables.page(marked.format("seeds"), tmp_path)
    assert "| weak, L1 5 | Square | 2 | 27.5 (25.0 to 30.0) | 45.0 (40.0 to 50.0) |\n" in spread
    one = {"natural": {"accuracy": 0.99}, "accuracy_after": {"square": 0.5}, "seconds": 61.2}
    (tmp_path / "some-cpu.json").write_text(json.dumps({"compared": {"replay": [one]}}))
    assert "| `replay` | 1 | 99.0 | 50.0 | 61 s |\n" in tables.page(marked.format("trained"), tmp_path)
