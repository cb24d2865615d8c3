"""The page "Forty steps inside every step" does what it says, and quotes what the journal says."""

import re

import pytest

from tests.docs import DOCS, run_page

PAGE = DOCS / "adversarial.md"


def test_the_code_of_the_page_runs_and_prints_what_the_page_shows():
    for block in run_page(PAGE, {}):
        assert block.printed == block.shown


def test_the_journal_says_what_the_page_quotes():
    seeds = sorted((PAGE.parents[2] / "shared" / "seeds").glob("004*.txt"))
    if not seeds:
        pytest.skip("the journals are not beside this checkout")
    journal = " ".join(seeds[0].read_text(encoding="utf-8").split())
    quotes = [
        " ".join(quote.split())
        for quote in re.findall(r'\*"([^"]+?)\.?"\*', PAGE.read_text(encoding="utf-8"))
    ]
    assert len(quotes) == 5
    assert [quote for quote in quotes if quote not in journal] == []
