"""The notebooks of examples/: kept as they were executed, small, and executed again."""

import json
import re
from pathlib import Path

import pytest

from tests.docs import DOCS

FOLDER = DOCS.parent / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MOST_BYTES = 100_000
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path: Path) -> list[dict]:
    return [
        cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"
    ]


def test_there_is_one_for_each_subject():
    words = ("faster", "train", "steering", "doctor", "thinker", "livecoded")
    assert len(NOTEBOOKS) == len(words)
    assert all(word in path.stem for word, path in zip(words, NOTEBOOKS, strict=True))


@each_notebook
def test_it_was_executed_from_top_to_bottom_without_an_error(path: Path):
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs
    assert not [
        output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"
    ]


@each_notebook
def test_it_is_small_and_names_no_folder_of_a_machine(path: Path):
    text = path.read_text(encoding="utf-8")
    assert len(text) < MOST_BYTES
    assert not re.search(r"/(tmp|home|root|Users|var)/", text)


@each_notebook
def test_it_is_on_the_page_of_notebooks(path: Path):
    page = (DOCS / "notebooks.md").read_text(encoding="utf-8")
    assert f"(../examples/notebooks/{path.name})" in page


@pytest.mark.slow
@each_notebook
def test_it_can_be_executed_again(path: Path):
    from tests.notebooks import executed

    kept, again = (
        [sorted({output["output_type"] for output in cell["outputs"]}) for cell in cells]
        for cells in (code_cells(path), [c for c in executed(path).cells if c["cell_type"] == "code"])
    )
    assert again == kept
