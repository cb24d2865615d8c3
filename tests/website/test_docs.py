"""The pages about loops in other libraries and about recurrent networks print what they show."""

from pathlib import Path

import pytest

from tests.docs import DOCS, run_page

PAGE = DOCS / "faster-loops.md"
RECURRENT_PAGE = DOCS / "recurrent-networks.md"


@pytest.mark.parametrize("page", [PAGE, RECURRENT_PAGE], ids=lambda page: page.stem)
def test_the_page_prints_what_it_shows(page: Path):
    for block in run_page(page, {}):
        assert block.printed == block.shown
