"""The code of the page on the thinker runs and prints what it shows."""

import pytest

from ..docs import DOCS, run_page

PAGE = DOCS / "thinker.md"


@pytest.mark.slow
def test_the_page_does_what_it_says():
    for block in run_page(PAGE, {}):
        assert block.printed == block.shown
