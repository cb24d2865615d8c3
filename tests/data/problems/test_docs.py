"""The code of the page on problems runs and prints what it shows."""

import pytest

from tests.docs import DOCS, run_page

PAGE = DOCS / "problems.md"


@pytest.mark.slow
def test_the_page_does_what_it_says():
    for block in run_page(PAGE, {}):
        assert block.printed == block.shown
