"""What a browser would find wrong with the site as it was built: mkdocs checks links as they are written in Markdown,
not those in HTML, in docstrings and in its theme. Everything that a page loads has to be in the site itself.
"""

import html.parser
import re
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

# Attributes that a browser loads, without being asked.
LOADED = {
    ("script", "src"),
    ("link", "href"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("video", "src"),
}
# Words of <link> that name an address, which nobody loads.
ONLY_NAMED = {"canonical", "prev", "next", "alternate"}


class Page(html.parser.HTMLParser):
    """The links, what is loaded, and the places of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = {"", "__skip"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.places |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        for name, value in values.items():
            if (tag, name) in LOADED and values.get("rel") not in ONLY_NAMED:
                self.loaded.append(value)


def pages_of(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def problems(site: Path) -> list[str]:
    """A line about each thing that is wrong."""
    pages = pages_of(site)
    return [*broken_links(site, pages), *foreign_addresses(site, pages)]


def broken_links(site: Path, pages: dict[Path, Page]) -> list[str]:
    """Links, to a place in a page too, that lead nowhere."""
    return [
        f"{path.relative_to(site)}: the link {link} leads nowhere"
        for path, page in pages.items()
        if path.name != "404.html"  # Its links are absolute, since it is shown anywhere.
        for link in page.links
        if urlsplit(link).scheme not in ("http", "https", "mailto")
        and not _leads_somewhere(path, link, pages)
    ]


def _leads_somewhere(page: Path, link: str, pages: dict[Path, Page]) -> bool:
    file, place = urldefrag(link)
    target = (page.parent / unquote(file)).resolve() if file else page
    if target.is_dir():
        target /= "index.html"
    return unquote(place) in pages[target].places if target in pages else target.exists()


def foreign_addresses(site: Path, pages: dict[Path, Page]) -> list[str]:
    """What is loaded from another host."""
    loaded = [(path, address) for path, page in pages.items() for address in page.loaded]
    for style in site.rglob("*.css"):
        loaded += [
            (style, found)
            for found in re.findall(r"url\(['\"]?([^)'\"]+)", style.read_text(encoding="utf-8"))
        ]
    return [
        f"{path.relative_to(site)}: {address} is on another host"
        for path, address in loaded
        if urlsplit(address).scheme not in ("", "data") or address.startswith("//")
    ]
