"""The result of a check: an error when something is wrong, a report when nothing is.

An error is one message in three parts: what is wrong, where (leaf, axis, index, step), and what to look at. A call
that a check cannot answer (a wrong rank, a batch of one) is not a finding and has its own class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from lapwing.core import LapwingError


class CheckError(LapwingError, AssertionError):
    """A check failed. `where` names every location, also those that the message omits."""

    def __init__(self, check: str, message: str, where: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.check = check
        self.where = tuple(where)


class CheckInputError(LapwingError, ValueError):
    """A check does not apply to its input; the message says what it needs."""


@dataclass(frozen=True)
class Report:
    """A check passed: a sentence, and its numbers by name.

    >>> print(Report("gradients", "4 directions agree", {"directions": 4}))
    gradients: 4 directions agree
    """

    check: str
    message: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.check}: {self.message}"


def check_function(function: Any) -> None:
    """Raises if something is given in the place of a function."""
    if not callable(function):
        raise CheckInputError(
            f"expected a function, found {str(function)[:60]!r} of type {type(function).__name__}"
        )


def fail(check: str, what: str, look: str, where: Sequence[str] = ()) -> NoReturn:
    """Raises the error of a check: what is wrong and where, then what to look at."""
    raise CheckError(check, f"{what}. Look at {look}.", where)
