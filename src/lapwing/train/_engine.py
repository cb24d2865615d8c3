"""What computes a training: compiled once, for one run or for many side by side."""

import dataclasses
import functools
from collections.abc import Callable

from lapwing.task import Loss, Task

from ._config import FitConfig
from ._mask import Mask
from ._phases import PhaseTimer
from ._state import State, shapes_of
from ._step import Packed, Phases, make_evaluation, make_phases


class Engine:
    """Makes the steps of states like `like`, and times its calls now and then. `form` says how the phases of a step are
    to be computed otherwise than as the task gives them: side by side for many runs, or split over devices."""

    def __init__(
        self,
        task: Task,
        mask: Mask,
        config: FitConfig,
        like: State,
        form: Callable[[Phases], Phases] = lambda phases: phases,
    ):
        self.task = task
        self._phases_of = lambda task: form(make_phases(task, mask, config))
        self.evaluate = make_evaluation(task)
        self.timer = PhaseTimer(self._phases_of(task), config)
        self._compiled = functools.cache(functools.partial(self.timer.compile, shapes_of(like)))
        self._calls = 0

    def advance(self, state: State, count: int) -> tuple[State, Packed]:
        """The state after `count` more steps; the one before is used up."""
        take_steps = self._compiled(count)
        if self.timer.is_due(self._calls, count):
            self.timer.time(state, take_steps)
        self._calls += 1
        return take_steps(state)

    def use(self, loss: Loss) -> None:
        """From now on this is the loss; it is compiled again if it is another one."""
        if loss is not self.task.loss:
            self.task = dataclasses.replace(self.task, loss=loss)
            self.timer.exchange(self._phases_of(self.task))
            self._compiled.cache_clear()
