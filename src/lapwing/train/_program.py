"""What compiles: the step of a task, as one call of several fused steps and as phases apart."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from lapwing.task import Loss, Task

from ._config import FitConfig
from ._mask import Mask
from ._state import State, shapes_of
from ._step import Packed, Phases, make_evaluation, make_phases, take_steps
from ._timer import FUSED, PhaseTimer


class Program:
    """The compiled steps of states like `like`. `transform` changes how the phases of a step are computed: batched over
    many runs, or split over devices."""

    def __init__(
        self,
        task: Task,
        mask: Mask,
        config: FitConfig,
        like: State,
        transform: Callable[[Phases], Phases] = lambda phases: phases,
    ):
        self.task = task
        self.timer = PhaseTimer(config)
        self.evaluate = make_evaluation(task)
        self._like = shapes_of(like)
        self._make_phases = lambda task: transform(make_phases(task, mask, config))
        self._phases = self._make_phases(task)
        self._compiled: dict[str | int, Callable[..., Any]] = {}
        self._calls = 0

    def advance(self, state: State, count: int) -> tuple[State, Packed]:
        """The state after `count` more steps; the one before is donated."""
        take = self.steps(count)
        if self.timer.is_due(self._calls, count):
            self.timer.time(state, take, self.phases)
        self._calls += 1
        return take(state)

    def steps(self, count: int) -> Any:
        """The compiled call of `count` fused steps, which donates its argument."""
        if count not in self._compiled:
            phases = self._phases

            def fused(state: State) -> tuple[State, Packed]:
                return take_steps(phases, state, count)

            self._compiled[count] = self._compile(FUSED, fused, (self._like,), donate_argnums=0)
        return self._compiled[count]

    def phases(self, call: Callable[..., Any]) -> Phases:
        """The phases of a step, compiled apart; each of them is run by `call(name, compiled phase, *arguments)`."""

        def apart(name: str, phase: Callable[..., Any]) -> Callable[..., Any]:
            def run(*arguments: Any) -> Any:
                if name not in self._compiled:
                    self._compiled[name] = self._compile(name, phase, arguments)
                return call(name, self._compiled[name], *arguments)

            return run

        return self._phases.map(apart)

    def use(self, loss: Loss) -> None:
        """Trains with this loss from now on; compiles again if it is another one."""
        if loss is not self.task.loss:
            self.task = dataclasses.replace(self.task, loss=loss)
            self._phases = self._make_phases(self.task)
            self._compiled.clear()

    def _compile(
        self, path: str, function: Callable[..., Any], arguments: tuple[Any, ...], **options: Any
    ) -> Callable[..., Any]:
        with self.timer.compiling(path, "trace"):
            traced = jax.jit(function, **options).trace(*arguments)
        with self.timer.compiling(path, "lower"):
            lowered = traced.lower()
        with self.timer.compiling(path, "compile"):
            return lowered.compile()
