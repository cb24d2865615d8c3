"""Every page can be found, every link on it leads somewhere, and every picture is shown."""

import re
from pathlib import Path

import pytest

from .docs import DOCS

ROOT = DOCS.parent
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]


def links_of(page: Path) -> set[Path]:
    """The files that a page links to or shows."""
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#]+)", prose)
    return {(page.parent / target).resolve() for target in targets if "://" not in target}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_that_are_there(page: Path):
    assert {link for link in links_of(page) if not link.exists()} == set()


def test_the_index_names_every_page():
    pages = set(DOCS.rglob("*.md")) - {DOCS / "README.md"}
    assert pages <= links_of(DOCS / "README.md")


def test_no_picture_is_kept_for_nobody():
    assert set(DOCS.glob("pictures/*")) <= set().union(*map(links_of, PAGES))


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_a_page_with_code_is_run_by_a_test(page: Path):
    if "```python" in page.read_text(encoding="utf-8"):
        tests = Path(__file__).parent.rglob("test_docs.py")
        assert any(f'PAGE = DOCS / "{page.name}"' in test.read_text() for test in tests)
