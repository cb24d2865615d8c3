"""The page on one's own model does what it says: its file is written, its commands and its code are run."""

import contextlib
import io
import re
import sys
from pathlib import Path

import pytest

from tests.docs import DOCS, MIXED_BLOCK, run_command

PAGE = DOCS / "your-own-model.md"


@pytest.mark.slow
def test_the_page(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for kind, code, shown in MIXED_BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if file := re.match(r"# (\w+\.py)\n", code):
            Path(file[1]).write_text(code)
        elif kind == "sh":
            for line in code.splitlines():
                run_command(line)
        else:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, str(PAGE), "exec"), {})
            assert printed.getvalue() == shown


def test_it_is_the_first_page():
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^- \[.*?\]\((.*?)\)", index, re.MULTILINE)[0] == PAGE.name
