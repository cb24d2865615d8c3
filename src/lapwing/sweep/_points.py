"""A sweep as data: what is trained, over which values, with which seeds. Its points are the same whenever it is asked.

Settings are the plain data of config.json, not config objects: a combination of values that makes no sense is an error
of its point alone, told when the point is run.
"""

import copy
import hashlib
import itertools
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lapwing.journal import from_json, to_json

from ._axes import Axis, SweepError, axis_of

Kind = Literal["grid", "random", "halving"]
_FORMAT = 1
_TRIES_PER_SAMPLE = 100
_LONGEST_VALUE = 40


@dataclass(frozen=True)
class Search:
    """Which of all combinations are run, and for how long.

    A grid runs all of them, `random` so many `samples`. `halving` begins with all of a grid, or with `samples`, trains
    each for a part of its steps, and lets the best 1/`eta` go on for `eta` times as many, `rungs` times in all.
    """

    kind: Kind = "grid"
    samples: int = 0
    seed: int = 0
    rungs: int = 3
    eta: int = 3

    def __post_init__(self) -> None:
        if self.kind == "random" and self.samples < 1:
            raise SweepError("a random search needs to know how many samples to draw; write --samples 20")
        if self.kind == "grid" and self.samples:
            raise SweepError("a grid has no samples; write --search random, or leave --samples out")
        if self.samples < 0 or self.rungs < 1 or self.eta < 2:
            raise SweepError("samples should be at least 0, rungs at least 1 and eta at least 2")


@dataclass(frozen=True)
class Candidate:
    """One combination of values, to be run with every seed."""

    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Point:
    """One run of a sweep: its folder's name, and the settings that it is trained with."""

    name: str
    candidate: Candidate
    seed: int
    settings: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Rung:
    """A part of a search: so many steps, and how many candidates go on after it. A grid has one rung."""

    number: int
    steps: int
    keep: int


@dataclass(frozen=True)
class Sweep:
    """An experiment, the settings that all points share, the axes as texts, how many seeds, and the search.

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
    search: Search = field(default_factory=Search)

    @classmethod
    def of(
        cls,
        experiment: str,
        config: Any,
        grid: Sequence[str],
        *,
        seeds: int = 1,
        search: Search | None = None,
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
        search = search or Search()
        if search.kind == "halving" and any(axis.path == "steps" for axis in axes):
            raise SweepError("halving chooses the steps of each point itself; leave them out of the grid")
        drawn = [axis.path for axis in axes if not axis.is_listed]
        if drawn and not search.samples:
            raise SweepError(
                f"a grid needs the values of {drawn[0]} as a list, such as {drawn[0]}=A,B; "
                "a range of them is for --search random"
            )
        return cls(experiment, from_json(to_json(config)), tuple(grid), axes, seeds, search)

    @property
    def name(self) -> str:
        """A name that the same sweep always has, and no other."""
        short = "-".join(_short_names(self.axes).values()) or "seeds"
        mark = hashlib.sha256(to_json(self.to_json()).encode()).hexdigest()[:6]
        return f"{_plain_word(self.experiment)}-{_plain_word(short)[:_LONGEST_VALUE]}-{mark}"

    def candidates(self) -> list[Candidate]:
        """All combinations of a grid, or those that were drawn."""
        search, paths = self.search, [axis.path for axis in self.axes]
        if search.samples:
            combinations = _drawn(self.axes, search.samples, random.Random(search.seed))
        else:
            combinations = itertools.product(*(axis.values for axis in self.axes))
        return _named(_short_names(self.axes), [dict(zip(paths, each, strict=True)) for each in combinations])

    def rungs(self, candidates: int) -> list[Rung]:
        """How long so many candidates are trained, and how many of them are left after each part.

        >>> from lapwing.train import FitConfig
        >>> sweep = Sweep.of("adding", FitConfig(steps=900), ["clip=1,2"], search=Search("halving", eta=3))
        >>> [(rung.steps, rung.keep) for rung in sweep.rungs(9)]
        [(100, 3), (300, 1), (900, 1)]
        """
        steps = self.settings["steps"]
        count = self.search.rungs if self.search.kind == "halving" else 1
        found = []
        for number in range(count):
            last = number == count - 1
            candidates = candidates if last else max(1, -(-candidates // self.search.eta))
            found.append(Rung(number, max(1, steps // self.search.eta ** (count - 1 - number)), candidates))
        return found

    def points(self, candidates: Iterable[Candidate], steps: int | None = None) -> list[Point]:
        """The runs of these candidates: one for each seed."""
        first = self.settings["seed"]
        found = []
        for candidate in candidates:
            for seed in range(first, first + self.seeds):
                settings = copy.deepcopy(dict(self.settings))
                # What is swept over comes last: it may be the steps themselves.
                chosen = {"seed": seed, **({} if steps is None else {"steps": steps}), **candidate.values}
                for path, value in chosen.items():
                    _set(settings, path, value)
                name = ",".join(filter(None, [candidate.name, f"seed={seed}"]))
                found.append(Point(name, candidate, seed, settings))
        return found

    def to_json(self) -> dict[str, Any]:
        """What sweep.json says of the sweep itself."""
        return {
            "format": _FORMAT,
            "experiment": self.experiment,
            "config": self.settings,
            "grid": list(self.grid),
            "seeds": self.seeds,
            "search": from_json(to_json(self.search)),
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "Sweep":
        """The sweep that sweep.json tells of."""
        from lapwing.experiments import REGISTRY
        from lapwing.train import config_from

        if told.get("format") != _FORMAT:
            raise SweepError(f"its format should be {_FORMAT}, but is {told.get('format')!r}")
        config = config_from(REGISTRY.load(told["experiment"]).Config, told["config"])
        search = Search(**told["search"])
        return cls.of(told["experiment"], config, told["grid"], seeds=told["seeds"], search=search)


def _set(settings: dict[str, Any], path: str, value: Any) -> None:
    *groups, last = path.split(".")
    for group in groups:
        settings = settings[group]
    settings[last] = value


def _drawn(axes: Sequence[Axis], count: int, chance: random.Random) -> list[tuple]:
    """So many different combinations; fewer, if there are no more to be found."""
    found: dict[tuple, None] = {}
    for _ in range(count * _TRIES_PER_SAMPLE):
        if len(found) == count:
            break
        found[tuple(axis.draw(chance) for axis in axes)] = None
    return list(found)


def _short_names(axes: Iterable[Axis]) -> dict[str, str]:
    """The last word of each path, or all of it where that word is not its own."""
    paths = [axis.path for axis in axes]
    words = [path.rpartition(".")[2] for path in paths]
    return {path: word if words.count(word) == 1 else path for path, word in zip(paths, words, strict=True)}


def _named(short: Mapping[str, str], combinations: Sequence[Mapping[str, Any]]) -> list[Candidate]:
    """With names that can be names of folders, each its own."""
    candidates, taken = [], set()
    for values in combinations:
        name = ",".join(f"{short[path]}={_plain_word(_text(value))}" for path, value in values.items())
        number = next(n for n in itertools.count(1) if (name, n) not in taken)
        taken.add((name, number))
        candidates.append(Candidate(name if number == 1 else f"{name}-{number}", values))
    return candidates


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain_word(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", text)[:_LONGEST_VALUE]
