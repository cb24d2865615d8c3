"""The page on measuring a loop: its example works, its table is the one that was measured."""

import importlib.util
import json
import re

import pytest

from lapwing.cli import main
from tests.docs import DOCS

PAGE = DOCS / "is-my-loop-faster.md"

spec = importlib.util.spec_from_file_location("loops_table", DOCS / "loops_table.py")
assert spec is not None
assert spec.loader is not None
loops_table = importlib.util.module_from_spec(spec)
spec.loader.exec_module(loops_table)


@pytest.mark.slow
def test_the_example_answers_as_the_page_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "my_model.py").write_text(code)
    (command,) = re.findall(r"^lapwing (explain .*)$", text, re.MULTILINE)
    assert main(command.split()) == 0
    shown = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    assert shown is not None
    said = capsys.readouterr().out.split("\n\n")[-1]
    assert [line.split(":")[0] for line in said.splitlines()] == [
        line.split(":")[0] for line in shown[1].splitlines()
    ]


def test_the_table_is_the_one_that_was_measured():
    if not loops_table.RESULTS.exists():
        pytest.skip("`lapwing bench loops` has not been run")
    text = PAGE.read_text(encoding="utf-8")
    results = json.loads(loops_table.RESULTS.read_text())
    assert text == loops_table.page(text, results), "`python docs/loops_table.py` makes it again"


def test_a_table_takes_the_place_of_the_last_one():
    part = {"ms": [4.0, 2.0], "ratio": 2.0, "memory": 1.5, "same_program": False}
    found = {"worst": ["min_gru", 2.0], "geometric_mean": 2.0, "geometric_mean_held_out": 1.5}
    results = {
        "environment": {"versions": {"jax": "0.10.2"}},
        "table": [
            {"name": "min_gru", "held_out": True, "gradient": part, "value": {**part, "same_program": True}},
            {"name": "lorenz", "held_out": False, "failed": "ValueError: planted"},
        ],
        "summary": {"gradient": found, "value": found},
    }
    once = loops_table.page(f"before\n{loops_table.BEGIN}old\n{loops_table.END}after\n", results)
    assert "| min gru \\* | 4.00 ms | 2.00 ms | 2.00 | ×1.5 | 4.00 ms | as written | ×1.5 |\n" in once
    assert "| lorenz | ValueError: planted |" in once
    assert "Geometric mean, gradient: **2.00** (1.50 of those held out); the worst is 2.00 (min gru)." in once
    assert (once.startswith("before\n"), once.endswith("after\n"), "old" in once) == (True, True, False)
    assert loops_table.page(once, results) == once
