"""A sweep as data: the experiment, the axes, the seeds, the search.

Settings are the plain data of config.json, not config objects: an invalid combination of values is an error of its
point alone, reported when the point is run.
"""

import copy
import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from lapwing.experiments import located, short
from lapwing.journal import from_json, to_json

from ._axes import RENAMED, Axis, SweepError, axis_of
from ._search import (
    AdaptiveSearch,
    Grid,
    Rounds,
    Search,
    SearchName,
    Values,
    is_adaptive,
    search_from_json,
    search_of,
    search_to_json,
)

_FORMAT = 1
_LONGEST_VALUE = 40


@dataclass(frozen=True)
class Candidate:
    """One combination of values, to be run with every seed.

    >>> from lapwing.experiments.adding import Config
    >>> [each.name for each in Sweep.of("adding", Config(), ["width=8,16"]).candidates()]
    ['width=8', 'width=16']
    """

    name: str
    values: Values


@dataclass(frozen=True)
class Point:
    """One run of a sweep: the name of its folder, and its settings.

    >>> from lapwing.experiments.adding import Config
    >>> sweep = Sweep.of("adding", Config(steps=9), ["width=8,16"], seeds=2)
    >>> point = sweep.points(sweep.candidates())[-1]
    >>> point.name, point.seed, point.settings["width"]
    ('width=16,seed=1', 1, 16)
    """

    name: str
    candidate: Candidate
    seed: int
    settings: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Sweep:
    """An experiment, the settings that all points share, the axes as texts, the number of seeds, and the search.

    >>> from lapwing.experiments.adding import Config
    >>> sweep = Sweep.of("adding", Config(steps=9), ["width=8..9", "clip=1,2"], seeds=2)
    >>> [candidate.name for candidate in sweep.candidates()]
    ['width=8,clip=1', 'width=8,clip=2', 'width=9,clip=1', 'width=9,clip=2']
    >>> [point.name for point in sweep.points(sweep.candidates()[:1])]
    ['width=8,clip=1,seed=0', 'width=8,clip=1,seed=1']
    """

    experiment: str
    settings: Mapping[str, Any]
    grid: tuple[str, ...]
    axes: tuple[Axis, ...] = field(compare=False)
    seeds: int = 1
    search: Search | AdaptiveSearch = field(default_factory=Grid)

    @classmethod
    def of(
        cls,
        experiment: str,
        config: Any,
        grid: Sequence[str],
        *,
        seeds: int = 1,
        search: SearchName | Search | AdaptiveSearch = "grid",
    ) -> "Sweep":
        """A sweep of an experiment over `grid`, with the options of `config` everywhere else."""
        axes = tuple(axis_of(text, type(config)) for text in grid)
        twice = {axis.path for axis in axes if sum(other.path == axis.path for other in axes) > 1}
        if twice:
            raise SweepError(
                f"{', '.join(sorted(twice))} is swept over twice; write all its values in one list"
            )
        if seeds < 1:
            raise SweepError(f"a sweep needs at least 1 seed, not {seeds}")
        sweep = cls(
            located(experiment), from_json(to_json(config)), tuple(grid), axes, seeds, search_of(search)
        )
        sweep.candidates()  # Raises what the search has against these axes.
        return sweep

    @property
    def name(self) -> str:
        """A name that is the same for the same sweep, and different for others."""
        axes = "-".join(_short_names(self.axes).values()) or "seeds"
        experiment = short(self.experiment)
        described = {**self.to_json(), "experiment": experiment}
        mark = hashlib.sha256(to_json(described).encode()).hexdigest()[:6]
        return f"{_plain_word(experiment)}-{_plain_word(axes)[:_LONGEST_VALUE]}-{mark}"

    def rounds(self) -> Rounds:
        """The rounds that the search proposes."""
        if is_adaptive(self.search):
            raise SweepError(
                f"the search {type(self.search).__name__} is asked for one combination at a time"
            )
        return cast(Search, self.search).rounds(self.axes, self.settings["steps"])

    def candidates(self) -> list[Candidate]:
        """The combinations that a search proposes before it knows any cost: the first round, or one."""
        if is_adaptive(self.search):
            asked = self.search.ask(self.axes, [])
            values = [] if asked is None else [asked]
        else:
            first = next(self.rounds(), None)
            values = first.values if first else []
        return Namer(self.axes).candidates(values)

    def points(self, candidates: Iterable[Candidate], steps: int | None = None) -> list[Point]:
        """The runs of these candidates: one for each seed."""
        first = self.settings["seed"]
        found = []
        for candidate in candidates:
            for seed in range(first, first + self.seeds):
                settings = copy.deepcopy(dict(self.settings))
                # The values come last: they may include the steps.
                chosen = {"seed": seed, **({} if steps is None else {"steps": steps}), **candidate.values}
                for path, value in chosen.items():
                    _set(settings, path, value)
                name = ",".join(filter(None, [candidate.name, f"seed={seed}"]))
                found.append(Point(name, candidate, seed, settings))
        return found

    def to_json(self) -> dict[str, Any]:
        """The sweep in sweep.json."""
        return {
            "format": _FORMAT,
            "experiment": self.experiment,
            "config": self.settings,
            "grid": list(self.grid),
            "seeds": self.seeds,
            "search": search_to_json(self.search),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], search: type | None = None) -> "Sweep":
        """The sweep in sweep.json. `search` is the class of its search if that is not one of Lapwing's."""
        from lapwing.experiments import find
        from lapwing.train import config_from

        if stored.get("format") != _FORMAT:
            raise SweepError(f"its format should be {_FORMAT}, but is {stored.get('format')!r}")
        settings = {RENAMED.get(str(name), str(name)): value for name, value in stored["config"].items()}
        config = config_from(find(stored["experiment"]).Config, settings)
        made = search_from_json(stored["search"], search)
        return cls.of(stored["experiment"], config, stored["grid"], seeds=stored["seeds"], search=made)


class Namer:
    """Gives each combination a name of its own that can be the name of a folder, the same in every round."""

    def __init__(self, axes: Iterable[Axis]):
        self._short = _short_names(axes)
        self._known: dict[str, Candidate] = {}

    def candidates(self, combinations: Iterable[Values]) -> list[Candidate]:
        return [self._candidate(values) for values in combinations]

    def _candidate(self, values: Values) -> Candidate:
        key = to_json(values)
        if key not in self._known:
            words = [f"{self._short[path]}={_plain_word(_text(value))}" for path, value in values.items()]
            name, taken = ",".join(words), {each.name for each in self._known.values()}
            names = (name if number == 1 else f"{name}-{number}" for number in itertools.count(1))
            self._known[key] = Candidate(next(each for each in names if each not in taken), values)
        return self._known[key]


def _set(settings: dict[str, Any], path: str, value: Any) -> None:
    *groups, last = path.split(".")
    for group in groups:
        settings = settings[group]
    settings[last] = value


def _short_names(axes: Iterable[Axis]) -> dict[str, str]:
    """The last word of each name, or all of it where that word is ambiguous."""
    names = {axis.path: axis.name or axis.path for axis in axes}
    words = [name.rpartition(".")[2] for name in names.values()]
    return {
        path: word if words.count(word) == 1 else name
        for (path, name), word in zip(names.items(), words, strict=True)
    }


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain_word(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", text)[:_LONGEST_VALUE]
