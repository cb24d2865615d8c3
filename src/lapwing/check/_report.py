"""What a check says: an error when something is wrong, a report when nothing is.

An error is one message in three parts: what is wrong, where (leaf, axis, index, step), and what to look at. A call
that makes no sense (a wrong rank, a batch of one) is not a finding and has a class of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from lapwing.core import LapwingError


class CheckError(LapwingError, AssertionError):
    """Something that a check found. `where` names every place, also those that the message leaves out."""

    def __init__(self, check: str, message: str, where: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.check = check
        self.where = tuple(where)


class CheckInputError(LapwingError, ValueError):
    """A check was asked for something that it cannot look at; the sentence says what to give it."""


@dataclass(frozen=True)
class Report:
    """What a check saw where nothing was wrong: a sentence, and its numbers by name.

    >>> print(Report("gradients", "4 directions agree", {"directions": 4}))
    gradients: 4 directions agree
    """

    check: str
    said: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.check}: {self.said}"


def found(check: str, what: str, look: str, where: Sequence[str] = ()) -> NoReturn:
    """Raises the error of a check: what is wrong and where, then what to look at."""
    raise CheckError(check, f"{what}. Look at {look}.", where)
