"""The page "Twelve ways a training loop lies to you" does what it says, and quotes what the journals say."""

import re

import pytest

from tests.docs import DOCS, run_page

PAGE = DOCS / "twelve-ways.md"


def test_the_code_of_the_page_runs_and_prints_what_the_page_shows():
    blocks = list(run_page(PAGE, {}))
    assert len(blocks) == 14
    for block in blocks:
        assert block.printed == block.shown


def test_there_are_twelve_ways_each_with_its_check():
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:13]
    assert [section.partition(".")[0] for section in sections] == [str(number) for number in range(1, 13)]
    for section in sections:
        assert "*How it looks:*" in section
        assert re.search(r"^`check\.\w+` ", section, re.MULTILINE)


def test_the_journals_say_what_the_page_quotes():
    seeds = sorted((PAGE.parents[2] / "shared" / "seeds").glob("*.txt"))
    if not seeds:
        pytest.skip("the journals are not beside this checkout")
    journals = " ".join(" ".join(seed.read_text(encoding="utf-8").split()) for seed in seeds)
    prose = re.sub(r"```.*?```", "", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    prose = re.sub(r'`\w+="\w+"`', "", prose)
    quotes = [" ".join(quote.split()) for quote in re.findall(r'"([^"]{15,})"', prose)]
    assert len(quotes) >= 9
    assert [quote for quote in quotes if quote not in journals] == []
