"""Commands whose first word names a module of a registry, which has options of its own: `train NAME`, `bench SUITE`."""

from collections.abc import Sequence
from dataclasses import make_dataclass
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import tyro

from lapwing.core import Registry

from .output import print_rich, table
from .parse import UsageError, parse


class Chosen(NamedTuple):
    """What was asked for. `options.config` is of the module's `Config`; the other options are the command's."""

    name: str
    module: ModuleType
    options: Any


def choose(
    registry: Registry, words: Sequence[str], command: str, more: Sequence[tuple[str, Any, Any]]
) -> Chosen | None:
    """The module named by the first word, with its options and `more`, those of the command: name, type, default.

    None if help was asked for, which has then been given.
    """
    kind = registry.kind.split()[-1]
    if not words:
        raise UsageError(f"which {kind}? there are {', '.join(registry.entries)}")
    name, *rest = words
    if name in ("-h", "--help"):
        print(f"usage: {command} NAME [options]; {command} NAME --help shows the options\n")
        print_rich(table([kind, "what it is"], registry.about().items()))
        return None
    module = registry.load(name)
    fields = [("config", Annotated[module.Config, tyro.conf.arg(name="")]), *more]
    options = parse(make_dataclass("Options", fields), rest, f"{command} {name}", registry.about()[name])
    return Chosen(name, module, options)
