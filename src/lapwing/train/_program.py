"""What compiles: the step of a task, as one call of several fused steps and as phases apart."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from lapwing.task import Loss, Task

from ._config import FitConfig
from ._evaluation import make_evaluation
from ._feed import Fed
from ._mask import Mask
from ._state import State, shapes_of
from ._step import Packed, Phases, make_phases, take_steps
from ._timer import FUSED, PhaseTimer

_NOTHING = Fed()
_LARGE_BYTES = 1 << 20  # Smaller constants do no harm, and may make the step faster.


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
        self.evaluate = make_evaluation(task, config)
        self._like = shapes_of(like)
        self._make_phases = lambda task: transform(make_phases(task, mask, config))
        self._phases = self._make_phases(task)
        self._compiled: dict[Any, Callable[..., Any]] = {}
        self._calls = 0

    def advance(
        self, state: State, count: int, fed: Fed = _NOTHING, waited: float | None = None
    ) -> tuple[State, Packed]:
        """The state after `count` more steps; the one before is donated. `waited` is the time that the host waited for
        the data, if it does that."""
        take = self.steps(count, fed)
        if self.timer.is_due(self._calls, count):
            self.timer.time(state, fed, take, self.phases, None if waited is None else waited / count)
        self._calls += 1
        return take(state, fed)

    def steps(self, count: int, fed: Fed = _NOTHING) -> Any:
        """The compiled call of `count` fused steps with what they are fed, which donates its first argument."""
        key = count, _shapes(fed)
        if key not in self._compiled:
            phases = self._phases

            def fused(state: State, fed: Fed) -> tuple[State, Packed]:
                return take_steps(phases, state, count, fed)

            self._compiled[key] = self._compile(FUSED, fused, (self._like, fed), donate=True)
        return self._compiled[key]

    def phases(self, call: Callable[..., Any]) -> Phases:
        """The phases of a step, compiled apart; each of them is run by `call(name, compiled phase, *arguments)`."""

        def apart(name: str, phase: Callable[..., Any]) -> Callable[..., Any]:
            def run(*arguments: Any) -> Any:
                key = name, _shapes(arguments[1:])
                if key not in self._compiled:
                    self._compiled[key] = self._compile(name, phase, arguments)
                return call(name, self._compiled[key], *arguments)

            return run

        return self._phases.map(apart)

    def use(self, loss: Loss) -> None:
        """Trains with this loss from now on; compiles again if it is another one."""
        if loss is not self.task.loss:
            self.task = dataclasses.replace(self.task, loss=loss)
            self._phases = self._make_phases(self.task)
            self._compiled.clear()

    def _compile(
        self, path: str, function: Callable[..., Any], arguments: tuple[Any, ...], donate: bool = False
    ) -> Callable[..., Any]:
        with self.timer.compiling(path, "trace"):
            traced = jax.jit(function, donate_argnums=0 if donate else ()).trace(*arguments)
            captured = _large(traced.jaxpr.consts)
            if captured:
                take, captured = _with_arguments(traced, donate)
                traced = take.trace(captured, *arguments)
        with self.timer.compiling(path, "lower"):
            lowered = traced.lower()
        with self.timer.compiling(path, "compile"):
            compiled = lowered.compile()
        return functools.partial(compiled, captured) if captured else compiled


def _shapes(tree: Any) -> Any:
    return tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree))


def _large(constants: Sequence[Any]) -> list[Any]:
    """Arrays that a function closes over and that should be arguments: as constants, they are copied into the program,
    and the compiler folds them for minutes."""
    found = list(constants)
    return found if sum(getattr(each, "nbytes", 0) for each in found) >= _LARGE_BYTES else []


def _with_arguments(traced: Any, donate: bool) -> tuple[Any, list[jax.Array]]:
    """The traced function with what it closes over as its first argument, and these arrays on the device."""
    program, output = traced.jaxpr, jax.tree.structure(traced.out_info)

    def function(captured: list[Any], *arguments: Any) -> Any:
        closed = ClosedJaxpr(program.jaxpr, captured)
        return jax.tree.unflatten(output, jaxpr_as_fun(closed)(*jax.tree.leaves(arguments)))

    return jax.jit(function, donate_argnums=1 if donate else ()), jax.device_put(program.consts)
