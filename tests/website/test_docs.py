"""The pages about loops in other libraries and about recurrent networks print what they show."""

from pathlib import Path

import pytest

from tests.docs import DOCS, run_page
from tests.slow import some

PAGE = DOCS / "faster-loops.md"
RECURRENT_PAGE = DOCS / "recurrent-networks.md"


@pytest.mark.parametrize("page", some([PAGE, RECURRENT_PAGE], 1), ids=lambda page: page.stem)
def test_the_page_prints_what_it_shows(page: Path):
    for block in run_page(page, {}):
        assert block.printed == block.shown
