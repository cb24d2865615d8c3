"""Many runs on one device, stepped together: their states are the rows of one table.

Each run is a `TrainingLoop` of its own, with its own folder, commands, best, rollbacks and end, and decides as if it
were alone. Only the steps are made together, by one compiled call over the table. A run whose state the host changes,
or that must not move (it is paused, has ended, or makes a shorter last call than the others), takes its state out:
its row is still computed, but ignored, and written again when the run comes back. So nothing is compiled again when a
run ends, and the runs may be at different steps.
"""

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from lapwing.journal import RunWriter
from lapwing.task import Stream, Task, TaskError

from ._alike import alike
from ._config import ConfigError, FitConfig
from ._config_json import changes, settings_of
from ._feed import Fed, Put
from ._gradient import forward_and_backward
from ._loop import TrainingLoop
from ._mask import Mask
from ._processes import are_several
from ._program import Program
from ._state import State, initial_state
from ._step import Phases
from ._transfer import Calls

VECTORIZED = ("seed", "learning_rate", "clip", "weight_decay")
"""The options in which runs of `fit_many` may differ: they are in the states, not in the compiled step."""

Config = TypeVar("Config", bound=FitConfig)


class Table:
    """The states of many runs, and the step of all of them."""

    def __init__(self, task: Task, configs: Sequence[FitConfig]):
        states, masks = zip(*(initial_state(task, config) for config in configs), strict=True)
        transform = functools.partial(_batched, task, masks[0], configs[0])
        self.put: Put | None = None
        self.program = Program(
            task, masks[0], configs[0], jax.eval_shape(_stack, states), transform, many=True
        )
        self.states: Sequence[State] = states
        self.calls = Calls(self.program)

    def advance(self, running: Sequence[TrainingLoop], loops: Sequence[TrainingLoop]) -> None:
        """Runs that make as many steps in their next call make it together; `loops` are the rows."""
        by_count = defaultdict(set)
        for loop in running:
            by_count[loop.next_count].add(loop)
        for count, together in by_count.items():
            self._take(count, together, loops)

    def _take(self, count: int, together: set[TrainingLoop], loops: Sequence[TrainingLoop]) -> None:
        fed = _fed(together, loops, count)
        table = self._current(loops)
        changed = self.calls.is_empty
        for row, loop in enumerate(loops):
            position = loop.position
            if loop not in together:
                position.state = position.state
            elif position.has_state:
                table, changed = _with_row(table, row, position.state), True
                position.lend_state(functools.partial(self._row, row), functools.partial(self._snapshot, row))
        if changed:
            self.calls.load(table, count, fed)
        self.calls.make(count, fed)
        receivers = []
        for row, loop in enumerate(loops):
            if loop in together:
                loop.position.advance(count)
                receivers.append((loop.expect(range(loop.position.before, loop.position.done)), row))
        self.calls.expect(receivers)

    def _current(self, loops: Sequence[TrainingLoop]) -> State:
        return _stack([loop.position.state for loop in loops]) if self.calls.is_empty else self.calls.state

    def _row(self, row: int) -> State:
        return _row_of(self.calls.state, row)

    def _snapshot(self, row: int) -> Callable[[], State]:
        state = self._row(row)
        return lambda: state


@jax.jit
def _stack(states: Sequence[State]) -> State:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


@jax.jit
def _row_of(table: State, row: int) -> State:
    return jax.tree.map(lambda leaf: leaf[row], table)


@jax.jit
def _with_row(table: State, row: int, state: State) -> State:
    return jax.tree.map(lambda leaf, new: leaf.at[row].set(new), table, state)


def _fed(together: set[TrainingLoop], loops: Sequence[TrainingLoop], count: int) -> Fed:
    """What the runs are fed, along a leading axis. A run that does not move gets that of another one, and its row is
    ignored."""
    fed = {loop: loop.feed.take(loop.position.done, count) for loop in loops if loop in together}
    some = next(iter(fed.values()))
    own = [fed.get(loop, some).own for loop in loops]
    return Fed(some.shared, jax.tree.map(lambda *leaves: jnp.stack(leaves), *own))


def _batched(task: Task, mask: Mask, config: FitConfig, phases: Phases) -> Phases:
    batched = phases.map(lambda _, phase: jax.vmap(phase))
    batched = batched._replace(data=jax.vmap(phases.data, in_axes=(0, Fed(None, 0, None))))  # type: ignore[arg-type]
    plain = config.accumulate == 1 and config.precision == "float32" and not task.has_key
    if task.losses is None or not plain or jax.default_backend() != "cpu":
        return batched  # On an H200, vmap is 1.6 to 2.1 times faster for 16 to 1024 dmm-lite.
    forward, backward = forward_and_backward(task, mask, config, many=True)
    return batched._replace(forward=forward, backward=backward)


def shared_task(
    build: Callable[[Config], Task], configs: Sequence[Config], runs: Sequence[RunWriter | None]
) -> Task:
    """The task of all runs; an error where they cannot share a compiled step."""
    if not configs or len(configs) != len(runs):
        raise ConfigError(
            f"each config needs a run, or None, but there are {len(configs)} configs and {len(runs)} runs"
        )
    if are_several():
        raise ConfigError("fit_many trains in one process, on one device; start it without a coordinator")
    differing = _differing(configs)
    task = build(configs[0])
    if isinstance(task.source, Stream):
        raise TaskError("data from an iterable are read run by run; train with fit, or give Arrays")
    if task.rounds is not None:
        raise TaskError(
            "a task with rounds is trained run by run, with fit: each run compiles its own losses"
        )
    if differing and not alike(task, build(dataclasses.replace(configs[0], **differing)), configs[0]):
        raise TaskError(
            f"{' or '.join(differing)} is built into the task as a constant, so runs that differ in it cannot share a "
            "compiled step; train them one by one, with fit"
        )
    return task


def _differing(configs: Sequence[FitConfig]) -> dict[str, Any]:
    """The options that differ between configs, each with a value that is not the first config's."""
    first = settings_of(configs[0])
    found: dict[str, Any] = {}
    for config in configs[1:]:
        for name, (old, new) in changes(first, settings_of(config)).items():
            if name not in VECTORIZED:
                raise ConfigError(
                    f"the configs may differ in {', '.join(VECTORIZED)}, but {name} is {old} in one and {new} in "
                    "another; train those separately"
                )
            found.setdefault(name, getattr(config, name))
    return found
