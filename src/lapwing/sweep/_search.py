"""Searches: which combinations of values to train, and for how many steps.

A search is an object with one method, `rounds`: a generator that yields rounds of combinations and is sent their costs.
It holds no state of its own. A sweep that continues runs the generator again from the start and sends it the costs that
are already in the run folders, so a search must propose the same rounds when it is sent the same costs: seed what is
random. A frozen dataclass can be written to sweep.json and compared.

An adaptive search has no rounds: it is asked for one combination whenever a worker is free, and is given all trials so
far. It holds no state either, so a sweep continues from the trials that are in the run folders.
"""

import dataclasses
import itertools
import random
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeGuard

from ._axes import Axis, SweepError

SearchName = Literal["grid", "random", "halving", "optuna"]
Values = Mapping[str, Any]
_TRIES_PER_SAMPLE = 100


@dataclass(frozen=True)
class Round:
    """Different combinations of values, by the paths of the axes. `steps` is the total number of steps of each, more
    than in an earlier round with the same combination; None: that of the experiment's config.

    >>> next(Grid().rounds([Axis("width", (8, 16))], 100)).values
    [{'width': 8}, {'width': 16}]
    """

    values: Sequence[Values]
    steps: int | None = None


Costs = Sequence[float | None]
"""One for each combination of a round: the mean of the metric over the seeds, negated if higher is better; `inf` if it
is not a number, and None if no seed has finished."""
Rounds = Generator[Round, Costs, None]
"""What a search yields: rounds, each answered with the costs of the one before."""


class Search(Protocol):
    """What a sweep asks of a search.

    >>> class Corners:
    ...     '''The first and the last value of one axis.'''
    ...     def rounds(self, axes, steps):
    ...         (axis,) = axes
    ...         yield Round([{axis.path: value} for value in (axis.values[0], axis.values[-1])], steps)
    >>> next(Corners().rounds([Axis("width", (8, 16, 32))], 100)).values
    [{'width': 8}, {'width': 32}]
    """

    def rounds(self, axes: Sequence[Axis], steps: int) -> Rounds:
        """Yields rounds; the value of each `yield` is the costs of that round. `steps` are those of the config.

        Raises `SweepError` before its first `yield` if it cannot search these axes.
        """
        ...


@dataclass(frozen=True)
class Trial:
    """A combination that an adaptive search has proposed, and what is known of it by now.

    `cost` is that of a finished trial, as in `Costs`; infinite if it has failed. `curve` is the cost in each complete
    part of the training, by the number of the part, from 1 to `PARTS`.

    >>> trial = Trial({"width": 8}, curve={1: 0.9, 2: 0.7})
    >>> trial.state, trial.cost, min(trial.curve.values())
    ('running', None, 0.7)
    """

    values: Values
    state: Literal["running", "finished", "pruned", "failed"] = "running"
    cost: float | None = None
    curve: Mapping[int, float] = field(default_factory=dict)


PARTS = 20
"""Parts of equal length that the training of a trial is divided into, to compare it with others at the same point."""


class AdaptiveSearch(Protocol):
    """What a sweep asks of a search that chooses each combination by the results of those before.

    >>> class Doubling:
    ...     '''Doubles the width until the cost rises.'''
    ...     samples = 9
    ...     def ask(self, axes, trials):
    ...         costs = [trial.cost for trial in trials]
    ...         if len(costs) == self.samples or len(costs) > 1 and costs[-1] > costs[-2]:
    ...             return None
    ...         return {"width": 8 * 2 ** len(costs)}
    ...     def prune(self, trial, others):
    ...         return False
    >>> done = [Trial({"width": 8}, "finished", 0.5), Trial({"width": 16}, "finished", 0.3)]
    >>> Doubling().ask([], done), Doubling().ask([], [*done, Trial({"width": 32}, "finished", 0.4)])
    ({'width': 32}, None)
    """

    @property
    def samples(self) -> int:
        """The largest number of combinations."""
        ...

    def ask(self, axes: Sequence[Axis], trials: Sequence[Trial]) -> Values | None:
        """A new combination, given all trials in the order in which they were proposed; None if there are enough.

        Raises `SweepError` if it cannot search these axes.
        """
        ...

    def prune(self, trial: Trial, others: Sequence[Trial]) -> bool:
        """Whether to stop a running trial, given the others."""
        ...


def is_adaptive(search: "Search | AdaptiveSearch") -> TypeGuard[AdaptiveSearch]:
    return hasattr(search, "ask")


@dataclass(frozen=True)
class Grid:
    """All combinations.

    >>> [round.values for round in Grid().rounds([Axis("width", (8, 16))], 100)]
    [[{'width': 8}, {'width': 16}]]
    """

    def rounds(self, axes: Sequence[Axis], steps: int) -> Rounds:
        yield Round(_all(axes))


@dataclass(frozen=True)
class Random:
    """Combinations drawn at random, all different; fewer than `samples` if there are no more."""

    samples: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise SweepError("a random search needs the number of samples to draw; write --samples 20")

    def rounds(self, axes: Sequence[Axis], steps: int) -> Rounds:
        yield Round(draw(axes, self.samples, random.Random(self.seed)))


@dataclass(frozen=True)
class Halving:
    """Successive halving: trains all combinations (or `samples` of them) for a fraction of the steps, then the best
    1/`eta` for `eta` times as many, in `rungs` rounds.

    >>> search = Halving(rungs=2, eta=2).rounds([Axis("width", (8, 16))], 100)
    >>> next(search)
    Round(values=[{'width': 8}, {'width': 16}], steps=50)
    >>> search.send([0.3, 0.1])
    Round(values=[{'width': 16}], steps=100)
    """

    rungs: int = 3
    eta: int = 3
    samples: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.samples < 0 or self.rungs < 1 or self.eta < 2:
            raise SweepError("samples should be at least 0, rungs at least 1 and eta at least 2")

    def rounds(self, axes: Sequence[Axis], steps: int) -> Rounds:
        if any(axis.path == "steps" for axis in axes):
            raise SweepError("halving sets the steps of each point; leave them out of the grid")
        left = draw(axes, self.samples, random.Random(self.seed)) if self.samples else _all(axes)
        keep = len(left)
        for rung in range(self.rungs):
            costs = yield Round(left, max(1, steps // self.eta ** (self.rungs - 1 - rung)))
            keep = max(1, -(-keep // self.eta))
            finished = {number: cost for number, cost in enumerate(costs) if cost is not None}
            best = sorted(finished, key=finished.__getitem__)[:keep]
            left = [left[number] for number in sorted(best)]


def _all(axes: Sequence[Axis]) -> list[Values]:
    for axis in axes:
        if not axis.is_listed:
            raise SweepError(
                f"a grid needs the values of {axis.path} as a list, such as {axis.path}=A,B; "
                "a range is for --search random or optuna"
            )
    paths = [axis.path for axis in axes]
    return [
        dict(zip(paths, each, strict=True)) for each in itertools.product(*(axis.values for axis in axes))
    ]


def draw(axes: Sequence[Axis], count: int, chance: random.Random) -> list[Values]:
    """Random combinations, all different; fewer than `count` if there are no more."""
    found: dict[tuple, None] = {}
    for _ in range(count * _TRIES_PER_SAMPLE):
        if len(found) == count:
            break
        found[tuple(axis.draw(chance) for axis in axes)] = None
    return [dict(zip([axis.path for axis in axes], each, strict=True)) for each in found]


def _by_name() -> dict[str, type]:
    from ._optuna import Optuna

    return {"grid": Grid, "random": Random, "halving": Halving, "optuna": Optuna}


def search_of(search: SearchName | Search | AdaptiveSearch, **options: Any) -> Search | AdaptiveSearch:
    """The search of a short form with these options; a search itself is returned as it is.

    >>> search_of("random", samples=3)
    Random(samples=3, seed=0)
    """
    if not isinstance(search, str):
        return search
    if search == "grid" and options.get("samples"):
        raise SweepError("a grid has no samples; write --search random, or leave --samples out")
    kind = _by_name()[search]
    return kind(**_known(kind, {"samples": 0, **options}))


def search_to_json(search: Search | AdaptiveSearch) -> dict[str, Any]:
    """What sweep.json says of a search: its name and its fields."""
    kind = next(
        (name for name, each in _by_name().items() if type(search) is each), type(search).__qualname__
    )
    if not dataclasses.is_dataclass(search):
        raise SweepError(f"the search {kind} should be a frozen dataclass, so that sweep.json can hold it")
    return {"kind": kind, **{field.name: getattr(search, field.name) for field in dataclasses.fields(search)}}


def search_from_json(stored: Mapping[str, Any], other: type | None = None) -> Search | AdaptiveSearch:
    """The search in sweep.json: one of Lapwing's, or of the class `other`."""
    ours = _by_name()
    kinds = ours if other is None else {other.__qualname__: other, **ours}
    if stored["kind"] not in kinds:
        raise SweepError(
            f"the search {stored['kind']} is not one of {', '.join(ours)}; continue the sweep from Python, "
            "with run_sweep and the same Sweep"
        )
    kind = kinds[stored["kind"]]
    return kind(**_known(kind, stored))


def _known(kind: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in options.items() if name in names}
