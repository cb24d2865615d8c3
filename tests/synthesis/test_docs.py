"""The page of the library does what it says, and is what docs/machines.py makes of the library."""

import importlib.util

import pytest

from tests.docs import DOCS, pictures_of, run_page

PAGE = DOCS / "machines.md"


@pytest.mark.slow
def test_the_code_of_the_page_runs_and_prints_what_the_page_shows():
    for block in run_page(PAGE, {}):
        assert block.printed.strip() == block.shown.strip()


def test_the_machines_of_the_page_are_those_of_the_library():
    spec = importlib.util.spec_from_file_location("machines", DOCS / "machines.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    text = PAGE.read_text(encoding="utf-8")
    assert text == script.page(text), "`python docs/machines.py` makes it again"
    assert len(pictures_of(PAGE)) == 18
