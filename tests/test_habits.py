"""Small habits that a machine can check, each for all files at once: a failure lists every file that breaks it."""

import ast
import re
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


# Names and phrases that were replaced by those of the field, so that they do not come back.
OLD_WORDS = re.compile(
    r"SequenceTask|lapwing\.tasks|\bAnatomy\b|waited_in_vain|losses_told|\btold\(|_heed\b|\bprereg\b|\bbinomial\b"
    r"|controls\.rate\b|--rate\b|\bseed 00[0-4]\b"
    r"|\b(so many|anew|unless told|is told|on end|goes on with|gone on|side by side|one believes)\b"
)
# Files that translate the old names.
TRANSLATORS = ("_legacy.py", "_version_0_1.py", "_memory.py", "parse.py")


def test_the_old_words_do_not_come_back():
    pages = [
        *ROOT.glob("docs/**/*.md"),
        ROOT / "README.md",
        *ROOT.glob("examples/*.py"),
        *ROOT.glob("benchmarks/*.py"),
    ]
    static = [*ROOT.glob("src/**/*.js"), *ROOT.glob("src/**/*.html")]
    found = [
        f"{file.relative_to(ROOT)}:{number}: {match[0]}"
        for file in [*SOURCE, *static, *pages]
        if file.name not in TRANSLATORS
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if (match := OLD_WORDS.search(line))
    ]
    assert not found, "\n".join(found)


def test_types_are_shipped():
    assert (ROOT / "src" / "lapwing" / "py.typed").exists()
