"""The page "Twelve ways a training loop lies to you" runs, and it and the story quote the journals correctly."""

import re

import pytest

from lapwing.check._of_step import CHECKS
from tests.docs import DOCS, run_page

PAGE = DOCS / "twelve-ways.md"
DOCTOR_PAGE = DOCS / "doctor.md"
STORY = DOCS / "story.md"


@pytest.mark.slow
def test_the_code_of_the_page_runs_and_prints_what_the_page_shows():
    blocks = list(run_page(PAGE, {}))
    assert len(blocks) == 14
    for block in blocks:
        assert block.printed == block.shown


def test_the_code_of_the_page_about_the_doctor_runs_and_prints_what_it_shows():
    blocks = list(run_page(DOCTOR_PAGE, {}))
    assert len(blocks) == 2
    for block in blocks:
        assert block.printed == block.shown


def test_every_check_that_run_all_has_is_on_one_of_the_pages():
    pages = PAGE.read_text(encoding="utf-8") + DOCTOR_PAGE.read_text(encoding="utf-8")
    assert [name for name in CHECKS if f"`{name}(" not in pages and f"`check.{name}`" not in pages] == []


def test_there_are_twelve_ways_each_with_its_check():
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:13]
    assert [section.partition(".")[0] for section in sections] == [str(number) for number in range(1, 13)]
    for section in sections:
        assert "*Symptom:*" in section
        assert re.search(r"^`check\.\w+` ", section, re.MULTILINE)


def test_every_link_to_the_story_leads_to_a_section():
    titles = re.findall(r"^## (.*)$", STORY.read_text(encoding="utf-8"), flags=re.MULTILINE)
    anchors = {title.lower().replace(",", "").replace(" ", "-") for title in titles}
    pages = [page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")]
    links = {link for page in pages for link in re.findall(r"story\.md#([\w-]+)", page)}
    assert links
    assert links <= anchors


@pytest.mark.parametrize(("page", "least"), [(PAGE, 9), (STORY, 7)])
def test_the_journals_say_what_a_page_quotes(page, least):
    files = sorted((DOCS.parents[1] / "shared" / "seeds").glob("*.txt"))
    if not files:
        pytest.skip("the journals are not beside this checkout")
    journals = " ".join(" ".join(each.read_text(encoding="utf-8").split()) for each in files)
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    prose = re.sub(r'`\w+="\w+"`', "", prose)
    quotes = [" ".join(quote.split()) for quote in re.findall(r'"([^"]{15,})"', prose)]
    assert len(quotes) >= least
    assert [quote for quote in quotes if quote not in journals] == []
