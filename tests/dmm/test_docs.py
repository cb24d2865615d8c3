"""The page on dataflow matrix machines does what it says: its code runs, and prints what stands below it."""

import contextlib
import io
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "dataflow-matrix-machines.md"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```\n)?", re.DOTALL)


def test_the_code_of_the_page_runs_and_prints_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    text = PAGE.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert len(blocks) == text.count("```python\n") == 13
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec"), names)
        assert printed.getvalue().strip() == shown.strip()
    drawn = {path.name for path in tmp_path.glob("*.png")}
    assert drawn == set(re.findall(r"\(pictures/(.*\.png)\)", text))
    assert all((DOCS / "pictures" / name).exists() for name in drawn)
