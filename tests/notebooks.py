"""The notebooks of examples/: `python -m tests.notebooks [NAME ...]` executes them and keeps their outputs."""

import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS = 600


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook with new outputs, run from top to bottom in an empty folder; the first error is raised."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": folder}})
        client.execute()
    return _kept(notebook)


def _kept(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Without the times of execution, and with names of temporary folders as `...`."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            output.get("metadata", {}).pop("needs_background", None)
            if "text" in output:
                output["text"] = _without_folders(output["text"])
            for kind, text in output.get("data", {}).items():
                if kind.startswith("text/"):
                    output["data"][kind] = _without_folders(text)
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def _without_folders(text: str) -> str:
    return re.sub(re.escape(tempfile.gettempdir()) + r"/\w+", "...", text)


if __name__ == "__main__":
    for each in NOTEBOOKS:
        if not sys.argv[1:] or each.name in sys.argv[1:]:
            print(each.name, flush=True)
            nbformat.write(executed(each), each)
