"""The page on measuring a loop: its example works, its table is the one that was measured."""

import importlib.util
import json
import re

from lapwing.cli import main
from tests.docs import DOCS

PAGE = DOCS / "is-my-loop-faster.md"

spec = importlib.util.spec_from_file_location("loops_table", DOCS / "loops_table.py")
assert spec is not None
assert spec.loader is not None
loops_table = importlib.util.module_from_spec(spec)
spec.loader.exec_module(loops_table)


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
    text = PAGE.read_text(encoding="utf-8")
    results = json.loads(loops_table.RESULTS.read_text())
    assert text == loops_table.page(text, results), "`python docs/loops_table.py` makes it again"
