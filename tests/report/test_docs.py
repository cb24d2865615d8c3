"""The page on reading a run does what it says."""

import re

import pytest

from tests.docs import DOCS, pictures_of, run_mixed_page

PAGE = DOCS / "reading-a-run.md"


def without_numbers(text: str) -> list[list[str]]:
    """The words of each line; names of runs, times and metrics differ from run to run and machine to machine."""
    text = re.sub(r"\d{8}-\d{6}-adding-\w{4}", "RUN", re.sub("─+", "─", text))
    return [re.sub(r"-?\d\S*", "#", line).split() for line in text.splitlines()]


@pytest.mark.slow
def test_the_commands_and_the_code_of_the_page_print_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = list(run_mixed_page(PAGE, {}))
    assert len(blocks) == 10
    for block in blocks:
        if block.code.startswith("lapwing"):
            assert sorted(without_numbers(block.printed)) == sorted(without_numbers(block.shown))
        else:
            assert block.printed == block.shown
    (report,) = (tmp_path / "one").glob("*/report.html")
    assert report.read_text(encoding="utf-8").count("data:image/png") == 2 * 4
    assert pictures_of(PAGE) == {"run-loss.png"}
    # The story that the page tells, whatever the numbers are.
    assert "They first differ at step 0, in clipped_norm: 1 and 2, a difference of 1" in blocks[2].printed
    assert re.search(r"^loss +[1-9]\d* ", blocks[2].printed, re.MULTILINE)
