"""Parameters of which `make test` runs a few; `make test-slow` runs the others."""

from collections.abc import Iterable
from typing import Any

import pytest


def some(values: Iterable[Any], *quick: int) -> list[Any]:
    """The values, all but those at these places marked as slow. A tuple is the values of several arguments."""
    found = list(values)
    assert quick, "name a place"
    assert max(quick) < len(found), f"there are {len(found)} values"
    return [each if at in quick else slow(each) for at, each in enumerate(found)]


def slow(value: Any) -> Any:
    if hasattr(value, "marks"):
        return pytest.param(*value.values, marks=[*value.marks, pytest.mark.slow], id=value.id)
    return pytest.param(*(value if type(value) is tuple else (value,)), marks=pytest.mark.slow)
