"""Every page can be found, every link on it leads somewhere, and every picture is shown."""

import re
from pathlib import Path

from .docs import DOCS

ROOT = DOCS.parent
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]


def links_of(page: Path) -> set[Path]:
    """The files that a page links to or shows."""
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#]+)", prose)
    return {(page.parent / target).resolve() for target in targets if "://" not in target}


def test_links_lead_to_files_that_exist():
    broken = {
        f"{page.relative_to(ROOT)} → {link}" for page in PAGES for link in links_of(page) if not link.exists()
    }
    assert broken == set()


def test_the_index_names_every_page():
    pages = set(DOCS.rglob("*.md")) - {DOCS / "README.md"}
    assert pages <= links_of(DOCS / "README.md")


def test_no_picture_is_kept_for_nobody():
    assert set(DOCS.glob("pictures/*")) <= set().union(*map(links_of, PAGES))


def test_a_page_with_code_is_run_by_a_test():
    with_code = {page.name for page in DOCS.glob("*.md") if "```python" in page.read_text(encoding="utf-8")}
    tests = [test.read_text() for test in Path(__file__).parent.rglob("test_docs.py")]
    assert {
        name for name in with_code if not any(f'PAGE = DOCS / "{name}"' in test for test in tests)
    } == set()
