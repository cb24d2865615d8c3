"""What the site has beside the pages of docs/: the API reference, and every file that a page links to.

Pages link as they do where they are, in a checkout: `../SECURITY.md`, `../examples/07_any_loop.py`, `../benchmarks`.
Such a target is added to the site, under its path in the repository: a page as a page, a program as a page that shows
it, a notebook as its cells and outputs, a folder as a list, a picture or a table of numbers as it is. Then the link is
rewritten, so that mkdocs checks it as any other.
"""

import ast
import os
import re
from pathlib import Path

import built
import reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import notebooks

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# Pages that are in the nav, but not in docs/.
ALWAYS = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples", "examples/notebooks")
CODE = {".py": "python", ".txt": "text", ".toml": "toml", "": "text", ".sh": "sh"}
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)

log = get_plugin_logger("lapwing")
# Generated page → the file of the repository it shows.
_origins: dict[str, Path] = {}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    assert config.nav
    config.nav = [
        {name: reference.nav()} if target == reference.FOLDER else {name: target}
        for entry in config.nav
        for name, target in entry.items()
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    _origins.clear()
    for uri, text in reference.pages().items():
        files.append(File.generated(config, uri, content=text))
    waiting = [ROOT / name for name in ALWAYS]
    for file in files.documentation_pages():
        waiting += outside_links(file.content_string, Path(file.abs_src_path or DOCS).parent)
    while waiting:
        target = waiting.pop()
        uri = uri_of(target)
        if uri in _origins:
            continue
        _origins[uri] = target
        if uri.endswith(".md"):
            text = page_of(target)
            files.append(File.generated(config, uri, content=text))
            base = target if target.is_dir() else target.parent
            waiting += [*outside_links(text, base), *(entries(target) if target.is_dir() else [])]
        else:
            files.append(File.generated(config, uri, abs_src_path=str(target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as the site needs them. A page of docs/ is where it was; one that shows another file is not."""
    uri = page.file.src_uri
    origin = _origins.get(uri, DOCS / uri)
    base = origin if origin.is_dir() else origin.parent

    def rewritten(match: re.Match[str]) -> str:
        target = resolve(match[2], base)
        if target is None:
            return match[0]
        return match[1] + os.path.relpath(uri_of(target), os.path.dirname(uri) or ".") + match[3]

    return outside_of_code(lambda prose: LINK.sub(rewritten, prose), markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """A problem of the finished site is a warning, which ends a strict build."""
    for problem in built.problems(Path(config.site_dir).resolve()):
        log.warning(problem)


def outside_of_code(change, markdown: str) -> str:
    """The text with everything changed but its blocks of code."""
    parts, end = [], 0
    for block in FENCE.finditer(markdown):
        parts += [change(markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(markdown[end:])])


def resolve(link: str, base: Path) -> Path | None:
    """The file of the repository that a link leads to; None for an address."""
    if ":" in link:
        return None
    target = Path(os.path.normpath(base / link))
    return target if target.exists() else None


def outside_links(markdown: str, base: Path) -> list[Path]:
    """What a page links to that is not in docs/."""
    found = [resolve(match[2], base) for match in LINK.finditer(FENCE.sub("", markdown))]
    return [path for path in found if path and not path.is_relative_to(DOCS) and path != ROOT / "README.md"]


def uri_of(target: Path) -> str:
    """Where a file of the repository is on the site."""
    if target == ROOT / "README.md" or target == DOCS:
        return "README.md"
    if target.is_relative_to(DOCS):
        return str(target.relative_to(DOCS))
    path = target.relative_to(ROOT)
    if target.is_dir():
        return str(path / "index.md")
    if path.suffix == ".md":
        return str(path).lower()
    return str(path.with_suffix(".md")) if path.suffix in {*CODE, ".ipynb"} else str(path)


def page_of(target: Path) -> str:
    """A file of the repository as a page."""
    if target.is_dir():
        lines = [f"- [{path.name}]({path.name}){summary(path)}" for path in entries(target)]
        return f"# {target.relative_to(ROOT)}\n\n" + "\n".join(lines) + "\n"
    text = target.read_text(encoding="utf-8")
    if target.suffix == ".md":
        return text
    if target.suffix == ".ipynb":
        return notebooks.page(text)
    return f"# {target.relative_to(ROOT)}\n\n````{CODE[target.suffix]}\n{text.rstrip()}\n````\n"


def entries(folder: Path) -> list[Path]:
    """What a folder has for readers."""
    kinds = {*CODE, ".md", ".ipynb", ".json", ".png"}
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and path.suffix in kinds and path.name[0] not in "_."
    )


def summary(path: Path) -> str:
    """The first line of a program's docstring, or the title of a notebook."""
    if path.suffix == ".py":
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        return f": {said.splitlines()[0]}" if said else ""
    return f": {notebooks.title(path.read_text(encoding='utf-8'))}" if path.suffix == ".ipynb" else ""
