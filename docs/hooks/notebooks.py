"""A notebook as a page: its cells with the outputs that were kept, which are text, HTML, SVG or PNG."""

import json
import re

SHOWN = ("text/html", "image/svg+xml", "image/png", "text/plain")


def page(text: str) -> str:
    """The notebook in Markdown."""
    cells = json.loads(text)["cells"]
    return "\n\n".join(part for cell in cells for part in _cell(cell) if part.strip()) + "\n"


def title(text: str) -> str:
    """The first heading of the notebook."""
    heading = re.search(r"^# (.*)$", page(text), re.MULTILINE)
    return heading[1] if heading else ""


def _cell(cell: dict) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    return [f"```python\n{source}\n```", *map(_output, cell["outputs"])]


def _output(output: dict) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output.get("data", {})
    kind = next((kind for kind in SHOWN if kind in data), None)
    if kind is None:
        return ""
    content = "".join(data[kind])
    if kind == "text/plain":
        return f"```text\n{content}\n```"
    if kind == "image/png":
        return f'<div class="notebook-output"><img alt="output" src="data:image/png;base64,{content.strip()}"></div>'
    # An empty line would end the block of HTML, and Markdown would read the rest.
    content = re.sub(r"\n\s*\n", "\n", content)
    return f'<div class="notebook-output">{content}</div>'
