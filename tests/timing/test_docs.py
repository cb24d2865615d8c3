"""The page "Where does the time go?" does what it says."""

import re

import pytest

from tests.docs import DOCS, run_page

PAGE = DOCS / "where-does-the-time-go.md"


def without_times(text: str) -> list[list[str]]:
    """The words of each line of a table, where times and shares differ from run to run."""
    text = re.sub(r"─+", "─", text)
    return [re.sub(r"[\d.]+ (s|ms|µs|ns)|[\d.]+%", "#", line).split() for line in text.splitlines()]


@pytest.mark.slow
def test_the_code_of_the_page_runs_and_prints_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = list(run_page(PAGE, {}))
    assert len(blocks) == 6
    for block in blocks:
        played = "clock=" in block.code  # by a clock moved by hand: exact
        if played:
            assert block.printed == block.shown
        else:
            assert without_times(block.printed) == without_times(block.shown)
    assert {path.name for path in tmp_path.iterdir()} == {"laps.png", "laps.json", "trace.json"}


def test_the_journal_says_what_the_page_says():
    seeds = sorted((PAGE.parents[2] / "shared" / "seeds").glob("004*.txt"))
    if not seeds:
        pytest.skip("the journals are not beside this checkout")
    journal = seeds[0].read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (whole step|\w+) \|((?: [\d.]+ \|){5})$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(rows) == 6
    for name, numbers in rows:
        line = re.search(rf"{name.replace('whole ', '')}: \[(.*)\]", journal)
        assert line is not None
        exact = [f"{float(number):.5f}" for number in line[1].split(",")]
        assert numbers.replace("|", " ").split() == exact
