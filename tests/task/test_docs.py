"""docs/data.md works, in order, and prints what it shows."""

import pytest

from tests.docs import DOCS, run_page

PAGE = DOCS / "data.md"


@pytest.mark.slow
def test_the_code_of_the_page_prints_what_the_page_shows():
    for block in run_page(PAGE, {}):
        assert block.printed == block.shown
