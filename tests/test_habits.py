"""Small habits that a machine can see to."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = sorted(ROOT.glob("src/**/*.py"))
MOST_LINES = 450


@pytest.mark.parametrize("file", [*SOURCE, *sorted(ROOT.glob("tests/**/*.py"))], ids=lambda file: file.name)
def test_files_are_small(file: Path):
    lines = file.read_text(encoding="utf-8").count("\n")
    assert lines <= MOST_LINES, f"{file.relative_to(ROOT)} has {lines} lines; make two files of it"


@pytest.mark.parametrize("file", SOURCE, ids=lambda file: file.name)
def test_a_module_begins_with_what_it_does(file: Path):
    assert ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))), (
        f"{file.relative_to(ROOT)} does not"
    )
