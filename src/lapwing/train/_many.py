"""Many runs side by side on one device: a population.

Each run is a `Loop` of its own, with its own folder, commands, best, rollbacks and ending; it decides for itself, as
if it were alone. Only the steps are made together, by one compiled call over a table of all states. A run whose state
the host wants to change, or that must not move (it is paused, has ended, or makes a shorter call than the others at
the end), is kept apart: its row of the table is computed on, but nobody looks at it, and it is written anew when the
run joins again. So nothing is compiled again when a run ends, and it does not matter which of them is at which step:
one may have gone back, or have been resumed from an earlier checkpoint than the others.
"""

import contextlib
import dataclasses
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from lapwing.journal import RunWriter
from lapwing.task import Task, TaskError

from ._alike import alike
from ._config import ConfigError, FitConfig
from ._config_json import changes, settings_of
from ._engine import Engine
from ._fit import FitResult, conclude
from ._interrupt import interrupts
from ._loop import PAUSED_LOOKS_EVERY_S, Loop
from ._mask import Mask
from ._processes import are_several
from ._progress import progress
from ._state import State, initial_state
from ._step import Packed, Phases, forward_and_backward

VECTORIZED = ("seed", "learning_rate", "clip", "weight_decay")
"""What may differ between runs that train side by side: it is in their states, and not in what is compiled."""

Config = TypeVar("Config", bound=FitConfig)


def fit_many(
    build: Callable[[Config], Task],
    configs: Sequence[Config],
    runs: Sequence[RunWriter | None],
    *,
    quiet: bool = True,
    allow_change: bool = False,
) -> list[FitResult]:
    """Trains a task for several configs side by side on one device, each into a run folder of its own, or into none.

    `build(config)` makes the task. The configs may differ in what `VECTORIZED` names; anything else is refused, and so
    is a task that has one of these built in as a number. Every run gets what `fit` would have given it, up to rounding:
    metrics, checkpoints, commands, its own end. Runs that were reopened go on from their checkpoints, wherever each of
    them is. The times that are told are those of a step of all.

    >>> import jax.numpy as jnp
    >>> task = Task(
    ...     init=lambda key: jax.random.normal(key, (3,)),
    ...     data=lambda key, step: jax.random.normal(key, (8, 3)),
    ...     loss=lambda params, x: (jnp.mean((x @ (params - 1)) ** 2), {}),
    ... )
    >>> configs = [FitConfig(steps=200, learning_rate=0.1, seed=seed, laps_every=0) for seed in range(3)]
    >>> [bool(result.metrics["loss"][-1] < 0.01) for result in fit_many(lambda _: task, configs, [None] * 3)]
    [True, True, True]
    """
    task = _task_of(build, configs, runs)
    steps = max(config.steps for config in configs)
    with contextlib.ExitStack() as opened:
        for run in filter(None, runs):
            opened.enter_context(run)
        interrupt = opened.enter_context(interrupts())
        shown = opened.enter_context(progress(steps, quiet))
        states, masks = zip(*(initial_state(task, config) for config in configs), strict=True)
        form = functools.partial(_side_by_side, task, masks[0])
        engine = Engine(task, masks[0], configs[0], jax.eval_shape(_table_of, states), form)
        members = []
        for state, config, run in zip(states, configs, runs, strict=True):
            say = functools.partial(_say, shown.say, run)
            members.append(Member(engine, state, config, run, interrupt, say, allow_change=allow_change))
            opened.callback(members[-1].saver.close)
        return _train(task, Population(engine, members), shown, quiet)


def _train(task: Task, population: "Population", shown: Any, quiet: bool) -> list[FitResult]:
    """The story of `fit`, with everybody in each of its lines."""
    results: dict[Member, FitResult] = {}
    while True:
        going = [member for member in population.members if member not in results]
        for member in going:
            if not member.waits:
                member.evaluate_if_due()
        over = [member for member in going if not member.waits and member.is_over()]
        for member in over:
            member.begin_to_close()
        for member in over:  # Those that end together have written their last states at the same time.
            results[member] = conclude(task, member, member.finish_closing(), quiet)
        going = [member for member in going if member not in results]
        if not going:
            return [results[member] for member in population.members]
        moving = [member for member in going if not member.waits]
        population.advance(moving)
        for member in moving:
            member.look()
        for member in going:
            member.hear()
            member.save_if_due()
        shown.show(min(going, key=lambda member: member.done))
        if not moving:
            time.sleep(PAUSED_LOOKS_EVERY_S)


class Member(Loop):
    """A run of a population. `apart` is its state while that is kept out of the table, and None while it is a row."""

    row: Callable[[], State]
    apart: State | None

    @property
    def state(self) -> State:
        return self.row() if self.apart is None else self.apart

    @state.setter
    def state(self, state: State) -> None:
        self.apart = state


class Population:
    """Runs whose steps are made together."""

    def __init__(self, engine: Engine, members: Sequence[Member]):
        self.members = members
        self._engine = engine
        self._table = _table_of([member.state for member in members])
        for place, member in enumerate(members):
            member.row, member.apart = functools.partial(self._row, place), None

    def advance(self, members: Sequence[Member]) -> None:
        """The next call of each of these: together with those that make as many steps."""
        by_count = defaultdict(list)
        for member in members:
            by_count[member.next_count].append(member)
        for count, together in by_count.items():
            self._take(count, {*together})

    def _take(self, count: int, together: set[Member]) -> None:
        for place, member in enumerate(self.members):
            if member not in together:
                member.state = member.state
            elif member.apart is not None:
                self._table = _with_row(self._table, place, member.apart)
                member.apart = None
        self._table, metrics = self._engine.advance(self._table, count)
        columns = _by_member(metrics.numbers)
        for member, numbers in zip(self.members, columns, strict=True):
            if member in together:
                member.take_in(count, Packed(numbers, metrics.names))

    def _row(self, place: int) -> State:
        return _row_of(self._table, place)


@jax.jit
def _table_of(states: Sequence[State]) -> State:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


@jax.jit
def _row_of(table: State, place: int) -> State:
    return jax.tree.map(lambda leaf: leaf[place], table)


@functools.partial(jax.jit, donate_argnums=0)
def _with_row(table: State, place: int, state: State) -> State:
    return jax.tree.map(lambda leaf, new: leaf.at[place].set(new), table, state)


@jax.jit
def _by_member(numbers: jax.Array) -> list[jax.Array]:
    return [numbers[:, place] for place in range(numbers.shape[1])]


def _side_by_side(task: Task, mask: Mask, phases: Phases) -> Phases:
    def over_members(part: Any) -> Any:
        return jax.vmap(part) if part else None

    together = Phases(*map(over_members, phases))
    if task.losses is None or jax.default_backend() != "cpu":
        return together  # On an H200 16 to 1024 dmm-lite are 1.6 to 2.1 times faster so.
    forward, backward = forward_and_backward(task, mask, many=True)
    return together._replace(forward=forward, backward=backward)


def _task_of(
    build: Callable[[Config], Task], configs: Sequence[Config], runs: Sequence[RunWriter | None]
) -> Task:
    """The task of all, if it is the same for all."""
    if not configs or len(configs) != len(runs):
        raise ConfigError(
            f"each config needs a run, or None, but there are {len(configs)} configs and {len(runs)} runs"
        )
    if are_several():
        raise ConfigError(
            "runs train side by side in one process, on one device; start it without a coordinator"
        )
    differing = _differing(configs)
    task = build(configs[0])
    if task.rounds is not None:
        raise TaskError(
            "a task with rounds is trained run by run, with fit: each run compiles what its rounds ask for"
        )
    if differing and not alike(task, build(dataclasses.replace(configs[0], **differing)), configs[0]):
        raise TaskError(
            f"{' or '.join(differing)} is built into the task as a number, so runs that differ in it cannot share a "
            "compiled step; train them one by one, with fit"
        )
    return task


def _differing(configs: Sequence[FitConfig]) -> dict[str, Any]:
    """What is not the same in all configs, with another value than the first one's."""
    first = settings_of(configs[0])
    found: dict[str, Any] = {}
    for config in configs[1:]:
        for name, (old, new) in changes(first, settings_of(config)).items():
            if name not in VECTORIZED:
                raise ConfigError(
                    f"runs that train side by side may differ in {', '.join(VECTORIZED)}, but {name} is {old} in one "
                    f"and {new} in another; train those apart"
                )
            found.setdefault(name, getattr(config, name))
    return found


def _say(say: Callable[[str], None], run: RunWriter | None, text: str) -> None:
    say(f"{run.name}: {text}" if run else text)
