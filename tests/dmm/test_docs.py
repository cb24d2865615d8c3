"""The page on dataflow matrix machines does what it says."""

from tests.docs import DOCS, pictures_of, run_page

PAGE = DOCS / "dataflow-matrix-machines.md"


def test_the_code_of_the_page_runs_and_prints_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = list(run_page(PAGE, {}))
    assert len(blocks) == 15
    for block in blocks:
        assert block.printed.strip() == block.shown.strip()
    assert {path.name for path in tmp_path.glob("*.png")} == pictures_of(PAGE)
