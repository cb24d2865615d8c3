"""Where a run is: its state on the device, after how many steps, and the changes that the host makes to it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lapwing.task import Turn
from lapwing.trees import structure

from ._config import FitConfig
from ._optimizer import make_schedule
from ._program import Program
from ._saver import passes
from ._state import State, copy_of, with_other_data


class Position:
    """The state of a run after `done` steps; before the last call it was after `before` steps."""

    def __init__(self, program: Program, config: FitConfig, state: State):
        self._program, self._config = program, config
        self._schedule = make_schedule(program.task, config)
        self.done = self.before = 0
        self.state = state

    @property
    def state(self) -> State:
        return self._row() if self._state is None else self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state: State | None = state
        self._learning_rate: float | None = None

    def lend_state(self, row: Callable[[], State], snapshot: Callable[[], Callable[[], State]]) -> None:
        """From now on the state is that of the last call, or a row of it, until it is set again."""
        self._state, self._row, self._snapshot = None, row, snapshot

    def snapshot(self) -> Callable[[], State]:
        """A function that returns the present state, now or later."""
        if self._state is None:
            return self._snapshot()
        copy = copy_of(self._state)
        return lambda: copy

    @property
    def has_state(self) -> bool:
        return self._state is not None

    @property
    def next_count(self) -> int:
        """How many steps the next call makes, if the data suffice."""
        return self.count_at(self.done)

    def count_at(self, step: int) -> int:
        """How many steps a call after `step` steps makes. Calls end at multiples of `steps_per_call`, also in a run
        that was resumed between two of them: what is decided at every n-th step relies on that."""
        whole = self._config.steps_per_call
        return min(whole - step % whole, self._config.steps - step)

    def advance(self, count: int) -> None:
        """A call of `count` steps was given to the device."""
        self.before, self.done = self.done, self.done + count

    def passed(self, every: int) -> bool:
        """Whether the last call reached or passed a multiple of `every` steps."""
        return passes(every, self.done, self.before)

    @property
    def learning_rate(self) -> float:
        """Before the factor of the schedule. Only the host changes it, so it is read once after each change. Where the
        optimizer is complete, this is `update_scale`."""
        if self._learning_rate is None:
            self._learning_rate = float(self.state.controls[self.rate_name])
        return self._learning_rate

    def set_learning_rate(self, learning_rate: float) -> None:
        old = self.state.controls[self.rate_name]
        new = jnp.full_like(old, learning_rate)  # On the devices of the old one.
        self.state = self.state.with_controls({self.rate_name: new})

    @property
    def rate_name(self) -> str:
        return self.state.rate_name

    def effective_now(self, base: float) -> str:
        """What the schedule makes of a rate at this step, in words; nothing where it is the same."""
        factor = float(jnp.asarray(self._schedule(self.done)))
        return "" if factor == 1 else f" (effective now {base * factor:.3g} by the schedule)"

    def move_to(self, state: State, step: int) -> None:
        """As if a call had just ended at this step, so that what is due after it is done again."""
        self.state = state
        self.done, self.before = step, max(0, step - self._config.steps_per_call)
        self.choose_loss()

    def roll_back(self, state: State, step: int, number: int, cut: float) -> None:
        """Returns to an earlier state, but with the present controls, the learning rate times `cut`, and new data."""
        controls = dict(self.state.controls)
        controls[self.rate_name] *= cut
        self.move_to(with_other_data(copy_of(state).with_controls(controls), number), step)

    def change(self, change: Callable[[Any, Any], Turn]) -> Turn:
        """Replaces parameters and optimizer state."""
        before = self.state.params, self.state.optimizer.task
        turn = change(*jax.device_get(before))
        structure(params=before[0], params_after_the_round=turn.params)
        structure(optimizer_state=before[1], optimizer_state_after_the_round=turn.optimizer)
        params, inner = jax.tree.map(jnp.asarray, (turn.params, turn.optimizer))
        optimizer = self.state.optimizer._replace(task=inner)
        self.state = copy_of(self.state._replace(params=params, optimizer=optimizer))
        self.choose_loss()
        return turn

    def choose_loss(self) -> None:
        """Compiles again if the rounds of the task want another loss for these parameters."""
        rounds = self._program.task.rounds
        if rounds is not None and rounds.loss is not None:
            self._program.use(rounds.loss(jax.device_get(self.state.params)))
