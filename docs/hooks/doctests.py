"""Examples in docstrings as blocks of code: a docstring has them as they are run, beginning with `>>>`."""

import re
from typing import Any

import griffe

# Lines from a prompt to an empty line or the end.
_EXAMPLE = re.compile(r"^>>> .*?(?=^\s*$|\Z)", re.DOTALL | re.MULTILINE)


def fenced(text: str) -> str:
    """A docstring in Markdown, with its examples in fences."""
    return _EXAMPLE.sub(lambda example: f"```pycon\n{example[0].rstrip()}\n```\n", text).rstrip()


class Doctests(griffe.Extension):
    """Rewrites docstrings as they are read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
