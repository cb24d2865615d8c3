"""Where the time of a step goes: its phases run apart, each waited for, on a copy of the state.

The run's own numbers do not change by being timed, since the copy is thrown away. Phases apart take longer
than the fused step, in which the compiler joins them; so the fused step is timed beside them, on a copy too.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import jax

from lapwing.core import format_seconds
from lapwing.timing import Laps, LapSummary, PhaseTimes

from ._config import FitConfig
from ._state import State, copy_of
from ._step import Packed, Phases, take_steps

_FIRST_CALLS = 4  # The first of them is kept apart from the statistics, which leaves three.


@dataclass(frozen=True)
class StepTimes:
    """The phases apart, and the fused call of `steps_per_call` steps."""

    phases: LapSummary
    fused: PhaseTimes
    steps_per_call: int

    @property
    def seconds_per_step(self) -> float | None:
        """Of the fused call; None before it was timed."""
        return None if self.fused.p50 is None else self.fused.p50 / self.steps_per_call

    @property
    def compiling_seconds(self) -> float:
        """Of tracing, lowering and compiling the fused call."""
        return sum(filter(None, [self.fused.trace, self.fused.lower, self.fused.compile]))

    def to_json(self) -> dict[str, Any]:
        """A lap summary with the fused call beside it, for laps.json."""
        fused = {**asdict(self.fused), "steps_per_call": self.steps_per_call}
        return {**self.phases.to_json(), "fused": fused}

    def __str__(self) -> str:
        """A table that fits a narrow terminal: the phases, what they sum to, and the step as it runs."""
        sums = [self.phases.unaccounted, self.phases.step]
        rows = [_row(times.path, times) for times in [*self.phases.phases, *sums]]
        rows[-1][0] = "sum"
        fused = ["fused, as it runs", format_seconds(self.seconds_per_step), "", "", _compiling(self.fused)]
        header = ["phase", "median", "p95", "share", "compiling"]
        widths = [max(map(len, column)) for column in zip(header, *rows, fused, strict=True)]
        lines = [_line(row, widths) for row in [header, *rows, fused]]
        rule = "─" * max(map(len, lines))
        return "\n".join([lines[0], rule, *lines[1:-2], rule, *lines[-2:]])


def _row(name: str, times: PhaseTimes) -> list[str]:
    share = "" if times.share is None else f"{times.share:.1%}"
    return [name, format_seconds(times.p50), format_seconds(times.p95), share, _compiling(times)]


def _compiling(times: PhaseTimes) -> str:
    spent = sum(filter(None, [times.trace, times.lower, times.compile]))
    return format_seconds(spent) if spent else ""


def _line(cells: list[str], widths: list[int]) -> str:
    name, *others = zip(cells, widths, strict=True)
    return "  ".join([name[0].ljust(name[1]), *(cell.rjust(width) for cell, width in others)]).rstrip()


class PhaseTimer:
    """Times one call in `every`, and the first few."""

    def __init__(self, phases: Phases, config: FitConfig):
        self._phases = phases
        self.every = config.laps_every
        self._steps_per_call = config.steps_per_call
        self._clock, self._fused_clock = _PausedClock(), _PausedClock()
        self._laps = Laps(clock=self._clock, sync=jax.block_until_ready)
        self._fused = Laps(clock=self._fused_clock, sync=jax.block_until_ready)
        self._compiled: dict[str, Callable[..., Any]] = {}
        # A clock stands between the timed calls, so that a step here is a timed call and nothing else.
        self._laps.step()
        self._fused.step()
        self._fused("fused")  # Known from now on, so that it has its times even if it never runs.

    def exchange(self, phases: Phases) -> None:
        """From now on these are the phases."""
        self._phases = phases
        self._compiled.clear()

    def is_due(self, call: int, count: int) -> bool:
        """Whether to time this call, the first being number 0. A shorter last call is not like the others."""
        if not self.every or count != self._steps_per_call:
            return False
        return call < _FIRST_CALLS or call % self.every == 0

    def compile(self, shapes: State, count: int) -> Callable[[State], tuple[State, Packed]]:
        """The fused call of `count` steps, which uses up its argument; the time of compiling is taken."""

        def fused(state: State) -> tuple[State, Packed]:
            return take_steps(self._phases, state, count)

        with self._fused_clock:
            return _compile(self._fused, "fused", fused, (shapes,), donate_argnums=0)

    def time(self, state: State, fused: Callable[[State], Any]) -> None:
        """Runs the step of `state` in phases and fused, on copies."""
        copy = jax.block_until_ready(copy_of(state))
        with self._fused_clock:
            with self._fused("fused") as phase:
                phase.wait_for(fused(copy))
            self._fused.step()
        with self._clock:
            self._run_phases(state)
            self._laps.step()

    def times(self) -> StepTimes:
        return StepTimes(self._laps.summary(), self._fused.summary().phases[0], self._steps_per_call)

    def _run_phases(self, state: State) -> None:
        batch = self._phase("data", self._phases.data, state)
        if self._phases.prepare:
            batch = self._phase("prepare", self._phases.prepare, state, batch)
        loss, metrics, pullback = self._phase("forward", self._phases.forward, state, batch)
        gradient = self._phase("backward", self._phases.backward, loss, pullback)
        state, metrics = self._phase("update", self._phases.update, state, loss, metrics, gradient)
        if self._phases.remember:
            self._phase("remember", self._phases.remember, state, batch, metrics)

    def _phase(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        if name not in self._compiled:
            self._compiled[name] = _compile(self._laps, name, function, arguments)
        with self._laps(name) as phase:
            return phase.wait_for(self._compiled[name](*arguments))


def _compile(
    laps: Laps, path: str, function: Callable[..., Any], arguments: tuple[Any, ...], **options: Any
) -> Callable[..., Any]:
    with laps.compiling(path, "trace"):
        traced = jax.jit(function, **options).trace(*arguments)
    with laps.compiling(path, "lower"):
        lowered = traced.lower()
    with laps.compiling(path, "compile"):
        return lowered.compile()


class _PausedClock:
    """A clock that goes only inside a `with` block."""

    def __init__(self) -> None:
        self._total = 0.0
        self._since: float | None = None

    def __call__(self) -> float:
        return self._total if self._since is None else self._total + time.perf_counter() - self._since

    def __enter__(self) -> None:
        self._since = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._total = self()
        self._since = None
