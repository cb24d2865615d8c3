"""Names that a person may type, each with the module behind it, which is imported only when used."""

import difflib
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType

from ._errors import LapwingError


class UnknownNameError(LapwingError, ValueError):
    """A name that is not known, with what may have been meant."""


@dataclass(frozen=True)
class Entry:
    """A module, relative to the package of its registry, and one line on what it does.

    >>> from lapwing.experiments import REGISTRY
    >>> REGISTRY.entries["adding"]
    Entry(module='adding', about='a GRU learns to add two marked numbers of a sequence')
    """

    module: str
    about: str


@dataclass(frozen=True)
class Registry:
    """What a package offers by name.

    >>> shelf = Registry("a parser", "json", {"decode": Entry("decoder", "reads JSON")})
    >>> shelf.load("decode").__name__
    'json.decoder'
    >>> shelf.load("decoed")
    Traceback (most recent call last):
    lapwing.core._names.UnknownNameError: 'decoed' is not a parser; did you mean decode?
    """

    kind: str
    package: str
    entries: Mapping[str, Entry]

    def load(self, name: str) -> ModuleType:
        """Imports the module behind a name."""
        if name not in self.entries:
            raise UnknownNameError(f"{name!r} is not {self.kind}; {suggestion(name, self.entries)}")
        return importlib.import_module(f"{self.package}.{self.entries[name].module}")

    def about(self) -> dict[str, str]:
        """Each name with its line."""
        return {name: entry.about for name, entry in self.entries.items()}


def suggestion(word: str, known: Iterable[str]) -> str:
    """What to write instead of a word that is not known.

    >>> suggestion("shwo", ["runs", "show"]), suggestion("x", ["runs", "show"])
    ('did you mean show?', 'there are runs, show')
    """
    known = list(known)
    if guess := closest(word, known):
        return f"did you mean {guess}?"
    return f"there are {', '.join(known)}" if known else "there are none yet"


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was most likely meant, if any is close."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)
