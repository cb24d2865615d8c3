"""Repairs broken machines: trains their weights until the answers are right again, and changes as few as it can.

All broken machines of one structure are one population. In an *attempt* every machine that is still wrong gets an equal
share of the rows, each from its own start: the broken weights with noise on all links that may come back, some links
forgotten or added. A row is trained with a penalty on its changes, loses those that are still small, and is trained
again without the penalty. The right row with the fewest changes is kept.

Then each repair is simplified, change by change from the smallest: it is undone if the others can make up for it, or
else rounded to a multiple of 1/2, and the others trained again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lapwing import trees
from lapwing.dmm import Machine, MachineError

from ._examples import Examples
from ._repair_population import Population, Rows

SEARCH = 0.6  # of the steps of an attempt; the rest is without the penalty
SMALL = 0.05  # A change below this, after training with the penalty, is undone.
FORGET = 0.2  # of the links, in half of the starts
NOISE = (0.0, 0.03, 0.1, 0.3)  # on the links of a start
RATES = (0.4, 1.0, 2.0)  # times the learning rate: what is too slow for one machine is too fast for another
PENALTIES = (0.1, 0.5, 1.0, 2.0)  # times the penalty
LAST = 0.002  # the learning rate at the end, as a part of the first
LONGER = 0.5  # Each attempt has this many more steps than the one before, as a part of the first.


@dataclass(frozen=True)
class RepairConfig:
    """How broken machines are repaired."""

    attempts: int = 10
    """number of attempts, each with new starts for the machines that are still wrong"""
    rows: int = 128
    """machines trained at once"""
    steps: int = 400
    """updates of the first attempt; later ones take more"""
    learning_rate: float = 0.05
    """size of the first steps; rows have between 0.4 and 2 times this"""
    penalty: float = 0.2
    """how much a change shrinks with each step, as a part of the learning rate; rows have 0.1 to 2 times this"""
    tolerance: float = 3e-4
    """a machine is right if no answer is wrong by more than this"""
    seed: int = 0
    """decides the noise of the starts"""

    def __post_init__(self) -> None:
        for name in ("attempts", "rows", "steps"):
            if getattr(self, name) < 1:
                raise MachineError(f"expected {name} of at least 1, but got {getattr(self, name)}")
        for name in ("learning_rate", "tolerance"):
            if not getattr(self, name) > 0:
                raise MachineError(f"expected a positive {name}, but got {getattr(self, name)}")


class Change(NamedTuple):
    """A weight that the repair changed; a link that was or is not there has the weight 0.

    >>> change = Change(("matrix", "output", "dict-1", "accum", "dict"), before=0.0, after=1.0)
    >>> "added" if change.before == 0 else "removed" if change.after == 0 else "changed"
    'added'
    """

    path: trees.Path
    before: float
    after: float


@dataclass(frozen=True)
class Repaired:
    """A machine after its repair.

    **Attributes**: `machine`; `right`, whether all answers to the examples are within the tolerance; `error`, the
    largest |error| of an answer; `changes`; `attempts`, after how many it was right. Without success the machine is
    the broken one.

    >>> from lapwing import dmm
    >>> changes = (Change(("matrix", "output", "dict-1"), 0.0, 1.0),)
    >>> found = Repaired(dmm.Machine.load("parity"), right=True, error=2e-4, changes=changes, attempts=3)
    >>> f"right after {found.attempts} attempts, with {len(found.changes)} change" if found.right else "still broken"
    'right after 3 attempts, with 1 change'
    """

    machine: Machine
    right: bool
    error: float
    changes: tuple[Change, ...]
    attempts: int


@dataclass
class _State:
    """What is known about one broken machine."""

    weights: np.ndarray
    error: float
    attempts: int = 0
    right: bool = False

    def changed(self, broken: np.ndarray) -> np.ndarray:
        return self.weights != broken


Progress = Callable[[str, int, int], bool | None]


def repair(machine: Machine, examples: Examples, config: RepairConfig | None = None) -> Repaired:
    """Trains a broken machine until its answers to the examples are right. Links between any of its neurons may come
    back; hard links stay as they are.

    >>> import jax
    >>> from lapwing import dmm, synthesis
    >>> broken = synthesis.damaged(dmm.Machine.load("parity"), jax.random.key(3), 1, "removed")
    >>> found = repair(broken, Examples.load("parity"), RepairConfig(rows=16, attempts=3))
    >>> found.right, found.error < 1e-3
    (True, True)
    """
    return repair_all([machine], examples, config)[0]


def repair_all(
    machines: Sequence[Machine],
    examples: Examples,
    config: RepairConfig | None = None,
    *,
    progress: Progress | None = None,
) -> list[Repaired]:
    """Repairs machines of the same neurons as one population, with one compiled program.

    **Arguments**: `progress(what, done, count)` is called after every attempt and every step of the simplification
    ("attempt" or "simplify"), with the number of machines that are done; if it returns True, the repair ends with what
    there is.

    >>> from lapwing import dmm
    >>> machines = [dmm.Machine.load("parity"), dmm.Machine.load("parity")]
    >>> found = repair_all(machines, Examples.load("parity"), RepairConfig(rows=2, attempts=1))
    >>> [(each.right, each.attempts) for each in found]
    [(True, 0), (True, 0)]
    """
    config = config or RepairConfig()
    population = Population(machines, examples, config.rows)
    _, errors = _in_parts(
        population, population.broken, population.broken, np.zeros(population.broken.shape, bool), 0, 1.0
    )
    states = [
        _State(row, float(error), right=bool(error <= config.tolerance))
        for row, error in zip(population.broken, errors, strict=True)
    ]
    ended = _attempt_all(population, states, config, progress)
    if not ended:
        _simplify_all(population, states, config, progress)
    return [
        _result(population, machine, row, state)
        for machine, row, state in zip(machines, population.broken, states, strict=True)
    ]


def _attempt_all(
    population: Population, states: list[_State], config: RepairConfig, progress: Progress | None
) -> bool:
    """Whether it was asked to end."""
    for attempt in range(config.attempts):
        still_wrong = [i for i, state in enumerate(states) if not state.right]
        if not still_wrong:
            return False
        # With more machines than rows, each attempt begins where the last one ended.
        owners = np.array([still_wrong[(attempt + r) % len(still_wrong)] for r in range(config.rows)])
        trained, errors = _attempt(population, owners, attempt, config)
        for i in np.unique(owners):
            states[i].attempts += 1
            _take_best(states[i], population.broken[i], trained[owners == i], errors[owners == i], config)
        done = sum(state.right for state in states)
        if progress and progress("attempt", done, len(states)):
            return True
    return False


def _attempt(
    population: Population, owners: np.ndarray, attempt: int, config: RepairConfig
) -> tuple[Rows, np.ndarray]:
    draw = np.random.default_rng([config.seed, attempt])
    broken = population.broken[owners]
    soft = np.broadcast_to(population.soft, broken.shape)
    start = _starts(broken, soft, draw)
    rate = config.learning_rate * draw.choice(RATES, len(owners))
    penalty = config.penalty * draw.choice(PENALTIES, len(owners))
    steps = round(config.steps * (1 + LONGER * attempt))
    search = round(SEARCH * steps)
    weights, _ = population.train(start, broken, soft, search, rate, 0.3, penalty)
    changed = np.abs(weights - broken) > SMALL
    weights = np.where(changed, weights, broken)
    return population.train(weights, broken, changed, steps - search, rate, LAST, 0 * penalty)


def _starts(broken: Rows, soft: np.ndarray, draw: np.random.Generator) -> Rows:
    """The broken weights, half of the rows without some of the links, half with one or two more of the sizes that
    links have here; and with noise, except in half of the latter: some machines are right only with exact weights."""
    forgets, adds, is_exact = draw.random((3, len(broken), 1)) < 0.5
    forgotten = (draw.random(broken.shape) < FORGET) & forgets
    added = (draw.random(broken.shape) < draw.choice((1.0, 2.0), adds.shape) / soft[0].sum()) & adds
    sizes = broken[soft & (broken != 0)]
    guess = draw.choice(sizes if len(sizes) else [1.0], broken.shape) * draw.choice((-1, 1, 1), broken.shape)
    noise = draw.choice(NOISE, adds.shape) * draw.normal(size=broken.shape) * ~(adds & is_exact)
    start = np.where(added, guess, np.where(forgotten, 0.0, broken)) + noise
    return np.where(soft, start, broken).astype(np.float32)


def _take_best(
    state: _State, broken: np.ndarray, rows: Rows, errors: np.ndarray, config: RepairConfig
) -> None:
    right = np.flatnonzero(errors <= config.tolerance)
    if len(right):
        best = min(right, key=lambda k: (np.sum(rows[k] != broken), errors[k]))
        state.weights, state.error, state.right = rows[best], float(errors[best]), True


def _simplify_all(
    population: Population, states: list[_State], config: RepairConfig, progress: Progress | None
) -> None:
    tried, fixed = np.zeros((2, *population.broken.shape), bool)  # What is undone or rounded is fixed.
    before = fixed.copy()
    while True:
        trials = [
            trial
            for i, state in enumerate(states)
            if state.right
            for trial in _trials(i, state, population.broken[i], tried[i], fixed[i])
        ]
        if not trials and np.array_equal(fixed, before):
            return
        if not trials:
            # What could not be undone may be possible now that others are.
            tried, before = fixed.copy(), fixed.copy()
            continue
        weights, free = (np.array([getattr(trial, name) for trial in trials]) for name in ("weights", "free"))
        broken = population.broken[[trial.owner for trial in trials]]
        rate, steps = config.learning_rate, config.steps // 2
        trained, errors = _in_parts(population, weights, broken, free, steps, rate)
        for i in {trial.owner for trial in trials}:
            rows = [k for k, trial in enumerate(trials) if trial.owner == i]
            enough = max(config.tolerance / 10, states[i].error)
            best = next((k for k in rows if errors[k] <= enough), None)
            tried[i] |= trials[rows[-1] if best is None else best].moved
            if best is not None:
                fixed[i] |= trials[best].moved
                states[i].weights, states[i].error = trained[best], float(errors[best])
        done = len(states) - len({trial.owner for trial in trials})
        if progress and progress("simplify", done, len(states)):
            return


class _Trial(NamedTuple):
    """A repair with one or more changes undone or rounded (`moved`), and what is trained to make up for it."""

    owner: int
    weights: np.ndarray
    free: np.ndarray
    moved: np.ndarray


def _trials(i: int, state: _State, broken: np.ndarray, tried: np.ndarray, fixed: np.ndarray) -> list[_Trial]:
    """What to try next, the best first: to undo the …, 4, 2, 1 smallest changes, or to round the smallest."""
    changed = state.changed(broken)
    by_size = np.argsort(np.where(changed & ~tried, np.abs(state.weights - broken), np.inf), kind="stable")
    count = int(np.sum(changed & ~tried))
    found = []
    for k in reversed([2**power for power in range(count.bit_length())]):
        moved = np.isin(np.arange(len(broken)), by_size[:k])
        found.append(_Trial(i, np.where(moved, broken, state.weights), changed & ~fixed & ~moved, moved))
    if count:
        moved = found[-1].moved
        rounded = np.round(2 * state.weights) / 2
        found.append(found[-1]._replace(weights=np.where(moved, rounded, state.weights).astype(np.float32)))
    return found


def _in_parts(
    population: Population, weights: Rows, broken: Rows, free: np.ndarray, steps: int, rate: float
) -> tuple[Rows, np.ndarray]:
    """`population.train` for any number of rows, without a penalty."""
    found = []
    for k in range(0, len(weights), population.rows):
        part = slice(k, k + population.rows)
        rates = np.full(len(weights[part]), rate)
        found.append(population.train(weights[part], broken[part], free[part], steps, rates, LAST, 0 * rates))
    return np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])


def _result(population: Population, machine: Machine, broken: np.ndarray, state: _State) -> Repaired:
    if not state.right:
        return Repaired(machine, False, state.error, (), state.attempts)
    made = population.machine(machine, state.weights)
    before, after = trees.paths(machine.values), trees.paths(made.values)
    changes = tuple(
        Change(path, before.get(path, 0.0), after.get(path, 0.0))
        for path, changed in zip(population.paths, state.changed(broken), strict=True)
        if changed
    )
    return Repaired(made, True, state.error, changes, state.attempts)
