"""The code and the commands of the page run."""

from pathlib import Path

import pytest

from tests.docs import DOCS, run_mixed_page

PAGE = DOCS / "sweeps.md"


@pytest.mark.slow
def test_the_page(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in run_mixed_page(PAGE, {}):
        if block.code.startswith("from "):
            assert block.printed == block.shown
