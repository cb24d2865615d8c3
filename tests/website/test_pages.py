"""What the site is made of, read without building it: which pages it has, and what the API reference shows."""

import importlib
import inspect
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import lapwing
from tests.docs import DOCS

ROOT = DOCS.parent
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def hook(name: str) -> ModuleType:
    """A module of docs/hooks."""
    sys.path.insert(0, str(DOCS / "hooks"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


built, reference = hook("built"), hook("reference")


def pages_of_nav() -> list[str]:
    """Every page in the nav of mkdocs.yml, in its order."""

    def walk(entries: list) -> list[str]:
        targets = [target for entry in entries for target in entry.values()]
        return [page for each in targets for page in (walk(each) if isinstance(each, list) else [each])]

    return walk(yaml.safe_load(CONFIG[CONFIG.index("\nnav:") :])["nav"])


def test_every_page_is_in_the_nav():
    missing = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - set(pages_of_nav())
    assert not missing, f"put these pages into `nav` of mkdocs.yml: {sorted(missing)}"


def test_every_page_of_the_nav_is_there():
    elsewhere = {"changelog.md", "contributing.md", "security.md", reference.FOLDER}
    assert {page for page in pages_of_nav() if not (DOCS / page).exists()} == elsewhere
    assert len(pages_of_nav()) == len(set(pages_of_nav()))


def test_the_reference_has_every_public_package():
    assert {*lapwing._LAYERS} <= set(reference.packages())
    assert reference.top_names() == lapwing._HOME


def test_the_first_page_of_the_reference_says_what_each_name_of_lapwing_is():
    index = reference.pages()[f"{reference.FOLDER}/index.md"]
    assert "- [`lw.scan`](loops.md#lapwing.loops.scan): A drop-in `jax.lax.scan`" in index
    assert re.findall(r"^- .*: *$", index, re.MULTILINE) == []


@pytest.mark.parametrize("package", reference.packages())
def test_the_reference_has_every_public_name(package: str):
    module = importlib.import_module(f"lapwing.{package}")
    assert sorted(reference.names_of(package)) == sorted(module.__all__)


def has_example(thing: object) -> bool:
    """Whether it, or one of its methods, has an example."""
    texts = (
        [thing.__doc__, *(getattr(each, "__doc__", None) for each in vars(thing).values())]
        if inspect.isclass(thing)
        else [thing.__doc__]
    )
    return any(">>>" in (text or "") for text in texts)


def needs_example(thing: object) -> bool:
    """Functions, and classes that are no errors; not a name for a type of another library."""
    if not getattr(thing, "__module__", "").startswith("lapwing"):
        return False
    if inspect.isclass(thing):
        return not issubclass(thing, BaseException)
    return inspect.isfunction(thing)


@pytest.mark.parametrize("package", reference.packages())
def test_every_public_name_has_an_example(package: str):
    module = importlib.import_module(f"lapwing.{package}")
    public = {name: getattr(module, name) for name in module.__all__}
    found = [name for name, thing in public.items() if needs_example(thing) and not has_example(thing)]
    assert not found, f"add an example to the docstrings of {found}"


def test_examples_of_a_docstring_are_blocks_of_code():
    fenced = hook("doctests").fenced("Adds.\n\n>>> add(\n...     1, 1)\n2\n\nAnd more.\n\n>>> 0\n0\n")
    first, second = "```pycon\n>>> add(\n...     1, 1)\n2\n```\n", "```pycon\n>>> 0\n0\n```"
    assert fenced == f"Adds.\n\n{first}\nAnd more.\n\n{second}"


def test_a_notebook_becomes_a_page_with_its_outputs():
    kept = [
        {"output_type": "stream", "text": ["4\n"]},
        {"output_type": "display_data", "data": {"image/png": "aaaa"}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Sums"]},
        {"cell_type": "code", "source": ["2 + 2"], "outputs": kept},
    ]
    page = hook("notebooks").page(json.dumps({"cells": cells}))
    assert page.startswith("# Sums\n\n```python\n2 + 2\n```\n\n```text\n4\n```")
    assert 'src="data:image/png;base64,aaaa"' in page


def test_docstrings_of_the_reference_have_no_heading_of_their_own():
    """mkdocstrings would list it beside the names."""
    for package in reference.packages():
        module = importlib.import_module(f"lapwing.{package}")
        for name in module.__all__:
            assert not re.search(r"^#+ ", inspect.getdoc(getattr(module, name)) or "", re.MULTILINE), name


def test_what_is_wrong_with_a_built_site_is_found(tmp_path: Path):
    (tmp_path / "index.html").write_text(
        '<h1 id="top"></h1><a href="more.html#there"></a><a href="more.html#gone"></a><a href="none.html"></a>'
        '<a href="https://jax.dev"></a><img src="data:,"><script src="//cdn.example/x.js"></script>'
    )
    (tmp_path / "more.html").write_text('<p id="there"><a href="index.html#top"></a><a href="."></a>')
    (tmp_path / "site.css").write_text("@font-face { src: url(https://fonts.example/a.woff) }")
    assert built.problems(tmp_path) == [
        "index.html: the link more.html#gone leads nowhere",
        "index.html: the link none.html leads nowhere",
        "index.html: //cdn.example/x.js is on another host",
        "site.css: https://fonts.example/a.woff is on another host",
    ]
