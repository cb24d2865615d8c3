"""Pages of docs/ do what they say: their code runs, in order, and prints what stands below it."""

import contextlib
import glob
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parents[1] / "docs"
MIXED_BLOCK = re.compile(r"```(python|sh)\n(.*?)```\n(?:```text\n(.*?)```\n)?", re.DOTALL)
BLOCK = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```\n)?", re.DOTALL)


class Block(NamedTuple):
    code: str
    shown: str
    """What the page says is printed."""
    printed: str


def run_page(page: Path, names: dict[str, Any]) -> Iterator[Block]:
    """Runs the blocks one after the other in the namespace `names`."""
    text = page.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert len(blocks) == text.count("```python\n"), "a block is not closed"
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(page), "exec"), names)
        yield Block(code, shown, printed.getvalue())


def run_mixed_page(page: Path, names: dict[str, Any]) -> Iterator[Block]:
    """The same for a page that also has commands, each a line that begins with `lapwing`."""
    for kind, code, shown in MIXED_BLOCK.findall(page.read_text(encoding="utf-8")):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if kind == "python":
                exec(compile(code, str(page), "exec"), names)
            else:
                for line in code.splitlines():
                    run_command(line)
        yield Block(code, shown, printed.getvalue())


def run_command(line: str) -> None:
    from lapwing.cli import main

    program, *words = shlex.split(line)
    assert program == "lapwing"
    # As a shell does it: a pattern becomes the names that are there.
    assert main([name for word in words for name in (sorted(glob.glob(word)) or [word])]) == 0


def pictures_of(page: Path) -> set[str]:
    """The names of the pictures that a page shows, all of which exist."""
    names = set(re.findall(r"\(pictures/(.*?)\)", page.read_text(encoding="utf-8")))
    assert all((DOCS / "pictures" / name).exists() for name in names)
    return names
