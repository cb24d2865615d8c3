"""The pages on dataflow matrix machines do what they say."""

from pathlib import Path

import pytest

from tests.docs import DOCS, pictures_of, run_page


def check(page: Path, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = list(run_page(page, {}))
    assert len(blocks) == count
    for block in blocks:
        assert block.printed.strip() == block.shown.strip()
    assert {path.name for path in tmp_path.glob("*.png")} == pictures_of(page)


def test_the_code_of_the_page_runs_and_prints_what_the_page_shows(tmp_path, monkeypatch):
    PAGE = DOCS / "dataflow-matrix-machines.md"
    check(PAGE, 15, tmp_path, monkeypatch)


@pytest.mark.slow
def test_the_page_on_machines_that_change_themselves(tmp_path, monkeypatch):
    PAGE = DOCS / "self-modifying.md"
    check(PAGE, 6, tmp_path, monkeypatch)
