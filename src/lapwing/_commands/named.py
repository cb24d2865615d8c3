"""Commands whose first word has options of its own: an experiment, `train NAME`, or a benchmark, `bench SUITE`."""

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import fields, make_dataclass
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import tyro

from lapwing.core import LapwingError, Registry
from lapwing.experiments import Experiment, find, known, short

from .output import print_rich, table
from .parse import UsageError, parse, sentence

More = Sequence[tuple[str, Any, Any]]
_FILES = "a file of your own: `lapwing new my_model.py` writes one to start from"


class Chosen(NamedTuple):
    """What was asked for. `options.config` is of the module's `Config`; the other options are the command's."""

    name: str
    module: ModuleType
    options: Any


class ChosenExperiment(NamedTuple):
    """An experiment, and the options of the command; `options.config` is those of the experiment."""

    experiment: Experiment
    options: Any


def choose(registry: Registry, words: Sequence[str], command: str, more: More) -> Chosen | None:
    """The module named by the first word, with its options and `more`, those of the command: name, type, default.

    None if help was asked for, which has then been given.
    """
    kind = registry.kind.split()[-1]
    if not words:
        raise UsageError(f"which {kind}? there are {', '.join(registry.entries)}")
    name, *rest = words
    if name in ("-h", "--help"):
        _print_help(kind, command, registry.about())
        return None
    module = registry.load(name)
    return Chosen(
        name, module, _options(module.Config, rest, more, f"{command} {name}", registry.about()[name])
    )


def choose_experiment(words: Sequence[str], command: str, more: More) -> ChosenExperiment | None:
    """The same for an experiment: one of the names in `lapwing list`, a file, or something in a module."""
    if not words:
        raise UsageError(f"which experiment? there are {', '.join(known())}, and FILE.py")
    name, *rest = words
    if name in ("-h", "--help"):
        _print_help(
            "experiment", command, {**{name: each.about for name, each in known().items()}, "FILE.py": _FILES}
        )
        return None
    experiment = find(name)
    _check_names(experiment, more, command)
    try:
        options = _options(experiment.Config, rest, more, f"{command} {name}", experiment.about)
    except (ValueError, AssertionError) as error:
        if isinstance(error, LapwingError) or not _is_raised_in(error, experiment):
            raise
        raise UsageError(f"{experiment.name} refuses its options: {error or 'an assertion failed'}") from None
    return ChosenExperiment(experiment, options)


def _is_raised_in(error: BaseException, experiment: Experiment) -> bool:
    """Whether the file of an experiment raised the error itself: a check of its `Config`."""
    frames = traceback.extract_tb(error.__traceback__)
    return experiment.source is not None and frames[-1].filename == str(experiment.source.path)


def _print_help(kind: str, command: str, about: Mapping[str, str]) -> None:
    print(f"usage: {command} NAME [options]; {command} NAME --help shows the options\n")
    print_rich(table([kind, "what it is"], about.items()))


def _options(config: type, words: Sequence[str], more: More, prog: str, about: str) -> Any:
    fields = [("config", Annotated[config, tyro.conf.arg(name="")]), *more]
    return parse(make_dataclass("Options", fields), words, prog, sentence(about))


def _check_names(experiment: Experiment, more: More, command: str) -> None:
    """The parser has no sentence for an option that there is twice."""
    taken = {name for each in more for name in _names(*each[:2])}
    if twice := [field.name for field in fields(experiment.Config) if field.name in taken]:
        raise UsageError(
            f"{twice[0]} in Config of {short(experiment.name)} is also an option of `{command}`; rename the field"
        )


def _names(name: str, hint: Any) -> list[str]:
    """The options that a field of the command makes: its name, a name that is given to it, or those of a group."""
    given = [
        each.name for each in getattr(hint, "__metadata__", ()) if getattr(each, "name", None) is not None
    ]
    if "" in given:
        return [field.name for field in fields(hint.__origin__)]
    return [each.replace("-", "_") for each in given or [name]]
