"""Small habits that a machine can check, each for all files at once: a failure lists every file that breaks it."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = sorted(ROOT.glob("src/**/*.py"))
MOST_LINES = 450


def test_files_are_small():
    files = [*SOURCE, *sorted(ROOT.glob("tests/**/*.py"))]
    lines = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8").count("\n") for file in files}
    long = {name: count for name, count in lines.items() if count > MOST_LINES}
    assert not long, f"files of more than {MOST_LINES} lines; split them: {long}"


def test_a_module_begins_with_what_it_does():
    silent = [
        str(file.relative_to(ROOT))
        for file in SOURCE
        if not ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert not silent, f"modules without a docstring: {silent}"
