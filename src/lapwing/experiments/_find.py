"""From what a person writes, `adding` or `my_model.py:deep`, to an experiment.

adding               one of Lapwing's own
my_model.py          a file with `build(config)`, or with a ready `task`
my_model.py:deep     something in it: a function, a `Task`, or an object with `build`
package.module:deep  the same in a module that can be imported
theirs               a name that an installed package adds, in the entry point group `lapwing.experiments`
"""

import dataclasses
import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lapwing.core import Entry, Registry, UnknownNameError, closest, suggestion

from ._options import instance_of, options_of
from ._source import ExperimentError, Source, execute

if TYPE_CHECKING:
    from lapwing.task import Task

GROUP = "lapwing.experiments"

REGISTRY = Registry(
    "an experiment",
    "lapwing.experiments",
    {
        "adding": Entry("adding", "a GRU learns to add two marked numbers of a sequence"),
        "adversarial": Entry("adversarial", "a network learns to classify digits under attack"),
        "dmm-feedforward": Entry(
            "dmm_feedforward", "a dataflow matrix machine learns to find duplicate characters"
        ),
        "dmm-lite": Entry(
            "dmm_lite", "the same with 25 neurons, all linked to all; --start published: the run of June 2022"
        ),
        "dmm-synthesis": Entry(
            "dmm_synthesis", "machines are trained and pruned until a person can read them"
        ),
        "superfluid": Entry(
            "superfluid", "a machine with mixed activation functions; the published superfluid runs"
        ),
        "superfluid-synthesis": Entry(
            "superfluid_synthesis", "machines with mixed functions become machines that a person can read"
        ),
        "latent-thinker": Entry(
            "latent_thinker", "a transformer that thinks in steps learns to copy, roll, sort or add"
        ),
        "thinker": Entry(
            "thinker", "a looped network learns small problems, and solves larger ones by thinking longer"
        ),
    },
)
"""The experiments that come with Lapwing, by name: those of `lapwing list`."""


@dataclass(frozen=True)
class Experiment:
    """Something to train, wherever it comes from.

    - `name` is what a run records: without the folder of a file.
    - `target` is what `find` takes to find it again from any folder.
    - `Config` is the dataclass of its options, a `lapwing.train.FitConfig`.
    - `build(config)` returns the `lapwing.task.Task`.
    - `source` is the file it is in; None for Lapwing's own.
    - `evaluate_run` does the work of `lapwing evaluate`, where evaluating the task is not enough.
    - `model(config, params)`, or `model(config, params, state)`, makes a model of what was learned, for `Run.model`.

    >>> from lapwing.experiments import find
    >>> adding = find("adding")
    >>> adding.name, adding.Config(steps=5).steps, adding.source
    ('adding', 5, None)
    """

    name: str
    target: str
    Config: Any
    build: "Callable[[Any], Task]"
    about: str
    source: Source | None = None
    evaluate_run: Callable[..., Any] | None = None
    model: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Known:
    """A name that can be trained: one line about it, and the package that adds it, if that is not Lapwing.

    >>> from lapwing.experiments import known
    >>> known()["adding"]
    Known(about='a GRU learns to add two marked numbers of a sequence', package='')
    """

    about: str
    package: str = ""


def find(name: str, source: Source | None = None) -> Experiment:
    """The experiment of a name, a file or a module.

    **Arguments:** `source` is the content of the file, for a process that may not have it.

    **Raises** `LapwingError` if there is no such experiment. An exception of the file itself is not changed.

    >>> find("adding").Config(steps=5).steps
    5
    >>> find("my_modle.py")
    Traceback (most recent call last):
    lapwing.experiments._source.ExperimentError: there is no file 'my_modle.py'; `lapwing new my_modle.py` writes ...
    """
    where, attribute = split(name)
    if is_file(where):
        source = source or Source.read(where)
        label, target = (_joined(each, attribute) for each in (source.path.name, str(source.path)))
        if not attribute and not source.names & {"build", "task", "*"}:  # Executed, a script would run.
            guess = closest("build", sorted(source.names))
            script = f"if it is a script with a loop of its own, write python {where}"
            raise _without_build(label, f"did you mean {guess}?" if guess else script)
        return _experiment(execute(source), attribute, label, target, source)
    if name in REGISTRY.entries:
        module = REGISTRY.load(name)
        about, more = REGISTRY.about()[name], _optional(module)
        return Experiment(name, name, module.Config, module.build, about, None, *more)
    if entries := _added(name):
        entry = _only(name, entries)
        module = importlib.import_module(entry.module)
        return _experiment(module, entry.attr or "", name, name, _source_of(module))
    if ":" in name:
        module = _imported(where)
        return _experiment(module, attribute, name, name, _source_of(module))
    if is_file(f"{name}.py") and os.path.isfile(f"{name}.py"):
        raise UnknownNameError(f"{name!r} is not an experiment; did you mean {name}.py?")
    raise UnknownNameError(f"{name!r} is not an experiment; {suggestion(name, known())}")


def known() -> dict[str, Known]:
    """The names that `find` knows: Lapwing's own, and those of installed packages, none of which is imported.

    >>> known()["adding"].about
    'a GRU learns to add two marked numbers of a sequence'
    """
    added = {
        entry.name: Known(_summary(entry.dist.metadata), entry.dist.name)
        for entry in importlib.metadata.entry_points(group=GROUP)
        if entry.dist
    }
    return {**added, **{name: Known(about) for name, about in REGISTRY.about().items()}}


def _summary(package: importlib.metadata.PackageMetadata) -> str:
    return package["Summary"] if "Summary" in package else ""  # noqa: SIM401 - it has no `get`


def split(name: str) -> tuple[str, str]:
    """A file or module, and the name of something in it.

    >>> split("models/net.py:deep"), split("net.py"), split("package.module:deep")
    (('models/net.py', 'deep'), ('net.py', ''), ('package.module', 'deep'))
    """
    if name.endswith(".py") or ":" not in name:
        return name, ""
    where, _, attribute = name.rpartition(":")
    return where, attribute


def is_file(where: str) -> bool:
    return where.endswith(".py")


def located(name: str) -> str:
    """The name with the absolute path of its file, so that it is found from any folder; other names as they are.

    >>> located("adding"), located("net.py:deep").endswith("/net.py:deep")
    ('adding', True)
    """
    where, attribute = split(name)
    return _joined(str(Path(where).resolve()), attribute) if is_file(where) else name


def short(name: str) -> str:
    """The name without the folder of its file.

    >>> short("/home/me/net.py:deep"), short("adding")
    ('net.py:deep', 'adding')
    """
    where, attribute = split(name)
    return _joined(Path(where).name, attribute) if is_file(where) else name


def _joined(where: str, attribute: str) -> str:
    return f"{where}:{attribute}" if attribute else where


def _added(name: str) -> list[importlib.metadata.EntryPoint]:
    return list(importlib.metadata.entry_points(group=GROUP, name=name))


def _only(name: str, entries: list[importlib.metadata.EntryPoint]) -> importlib.metadata.EntryPoint:
    if len(entries) > 1:
        written = " or ".join(sorted(entry.value for entry in entries))
        raise ExperimentError(f"{name!r} is added by {len(entries)} packages; write {written}")
    return entries[0]


def _imported(name: str) -> ModuleType:
    if "" not in sys.path and os.getcwd() not in sys.path:  # As `python -m` does.
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # The module is there, and imports something that is not.
        raise ExperimentError(
            f"there is no module {name!r}; write package.module:name of an installed package, or FILE.py"
        ) from None


def _source_of(module: ModuleType) -> Source | None:
    path = getattr(module, "__file__", None)
    return Source.read(path) if path and is_file(path) else None


def _experiment(
    module: ModuleType, attribute: str, label: str, target: str, source: Source | None
) -> Experiment:
    from lapwing.task import Task

    thing: Any = _attribute(module, attribute, label) if attribute else module
    build, config = _build_of(thing, module, label)
    if build is None:
        has = suggestion("build", _own_names(module)) if thing is module else f"it is {_kind(thing)}"
        raise _without_build(label, has)
    Config = options_of(config, label)

    def checked(options: Any) -> Task:
        task = build(instance_of(config, options))
        if not isinstance(task, Task):
            raise ExperimentError(f"build in {label} should return a lapwing.task.Task, not {_kind(task)}")
        return task

    about = next(iter((inspect.getdoc(thing) or "").splitlines()), "") if not isinstance(thing, Task) else ""
    evaluate_run, make = _optional(thing)
    model = make and functools.wraps(make)(
        lambda options, *learned: make(instance_of(config, options), *learned)
    )
    about = about or f"the task in {label}"
    return Experiment(label, target, Config, checked, about, source, evaluate_run, model)


def _without_build(label: str, has: str) -> ExperimentError:
    return ExperimentError(
        f"{label} should have build(config) that returns a lapwing.task.Task, or a task that is one; {has}"
    )


def _optional(thing: Any) -> tuple[Any, Any]:
    return getattr(thing, "evaluate_run", None), getattr(thing, "model", None)


def _attribute(module: ModuleType, path: str, label: str) -> Any:
    thing: Any = module
    for name in path.split("."):
        if not hasattr(thing, name):
            where = label.removesuffix(f":{path}")
            raise ExperimentError(f"there is no {path!r} in {where}; {suggestion(name, _own_names(thing))}")
        thing = getattr(thing, name)
    return thing


def _own_names(thing: Any) -> list[str]:
    """What it defines itself, without what it imports."""
    home = getattr(thing, "__name__", None)
    return [
        name
        for name, value in vars(thing).items()
        if not name.startswith("_")
        and getattr(value, "__module__", home) == home
        and not inspect.ismodule(value)
    ]


def _build_of(thing: Any, module: ModuleType, label: str) -> tuple[Callable[[Any], Any] | None, Any]:
    """The function that returns the task, and the class of its config."""
    from lapwing.task import Task
    from lapwing.train import FitConfig

    task = thing if isinstance(thing, Task) else getattr(thing, "task", None)
    build = getattr(thing, "build", None)
    if build is None and isinstance(task, Task):
        return lambda config: task, FitConfig
    if build is None and inspect.isroutine(thing):
        build = thing
    if not callable(build):
        return None, None
    parameter = _config_parameter(build, label)
    own = getattr(thing, "Config", None)
    if parameter is None:
        return lambda config: build(), own or FitConfig
    return build, own or _annotated(parameter, module) or getattr(module, "Config", None) or FitConfig


def _config_parameter(build: Callable[..., Any], label: str) -> inspect.Parameter | None:
    """The parameter that takes the config, if there is one; an error if another one needs a value."""
    parameters = inspect.signature(build).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [each for each in parameters if each.default is each.empty and each.kind not in variadic]
    if len(needed) > 1 or any(each.kind is each.KEYWORD_ONLY for each in needed):
        raise ExperimentError(
            f"build in {label} should take the config alone, but needs {', '.join(each.name for each in needed)}; "
            "make them fields of Config"
        )
    return next(iter(needed), None) or next((each for each in parameters if each.name == "config"), None)


def _annotated(parameter: inspect.Parameter, module: ModuleType) -> Any:
    """The dataclass with which the parameter is annotated, if it is."""
    hint = parameter.annotation
    if isinstance(hint, str):  # A module with postponed annotations.
        hint = getattr(module, hint, None)
    return hint if isinstance(hint, type) and dataclasses.is_dataclass(hint) else None


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
