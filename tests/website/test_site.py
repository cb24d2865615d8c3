"""The site as it is built: strictly, complete, with links that lead somewhere, and without a request to another host.

Building takes about ten seconds of processor time, so this is slow; `make test` and `make docs` build it too.
"""

import functools
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.board.browsing import ARGUMENTS, chromium
from tests.docs import DOCS
from tests.website.test_pages import built, pages_of_nav, reference

ROOT = DOCS.parent
pytestmark = pytest.mark.slow
PATIENCE_MS = 180_000  # A busy machine may need long for one page.
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site").resolve()
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict:
    return built.pages_of(site)


def test_every_page_of_the_nav_is_built(site: Path):
    names = {page.replace("README.md", "index.md") for page in pages_of_nav() if page != reference.FOLDER}
    names |= {f"api/{package}.md" for package in reference.packages()}
    assert [name for name in names if not (site / name).with_suffix(".html").exists()] == []


def test_links_and_anchors_resolve(site: Path, pages: dict):
    assert built.broken_links(site, pages) == []
    assert sum(len(page.links) for page in pages.values()) > 1000


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict):
    assert built.foreign_addresses(site, pages) == []


def test_every_public_name_has_an_entry(site: Path, pages: dict):
    for package in reference.packages():
        places = pages[site / "api" / f"{package}.html"].places
        assert {f"lapwing.{package}.{name}" for name in reference.names_of(package)} <= places


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_) -> None:
        pass


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_no_page_is_wider_than_the_window_or_asks_elsewhere(
    site: Path, address: str, pages: dict, size: str, scheme: str
):
    program = chromium()
    from playwright.sync_api import sync_playwright

    width, height = SIZES[size]
    wide, foreign, wrong = [], set(), []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        view = context.new_page()
        view.set_default_timeout(PATIENCE_MS)
        view.on("request", lambda request: foreign.add(request.url))
        view.on("pageerror", lambda error: wrong.append(str(error)))
        for path in pages:
            view.goto(f"{address}/{path.relative_to(site)}")
            if view.evaluate("document.documentElement.scrollWidth") > width:
                wide.append(str(path.relative_to(site)))
        browser.close()
    assert wide == []
    assert wrong == []
    assert {url for url in foreign if not url.startswith((address, "data:", "blob:"))} == set()


def test_the_search_finds_a_page(address: str):
    program = chromium()
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        view = browser.new_page(viewport={"width": 1280, "height": 900})
        view.set_default_timeout(PATIENCE_MS)
        view.goto(f"{address}/index.html")
        view.locator("input.md-search__input").fill("rollback")
        expect(view.locator(".md-search-result__link").first).to_be_visible(timeout=PATIENCE_MS)
        assert "steering.html" in " ".join(
            link.get_attribute("href") or "" for link in view.locator(".md-search-result__link").all()
        )
        browser.close()
