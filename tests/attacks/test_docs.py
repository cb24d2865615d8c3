"""The pages about attacks do what they say, and one quotes what the journal says."""

import re
from typing import Any

import pytest

from tests.docs import DOCS, run_page

PAGE = DOCS / "adversarial.md"
AUTOATTACK_PAGE = DOCS / "autoattack.md"


@pytest.mark.slow
def test_the_code_of_the_page_runs_and_prints_what_the_page_shows():
    for block in run_page(PAGE, {}):
        assert block.printed == block.shown


@pytest.mark.slow
def test_each_snippet_for_plain_jax_flax_and_equinox_runs_alone_and_prints_what_the_page_shows():
    names: dict[str, Any] = {}
    for block in run_page(AUTOATTACK_PAGE, names):
        assert block.printed == block.shown
        names.clear()


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
