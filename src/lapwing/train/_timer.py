"""Where the time of a step goes: its phases are run apart, each waited for, and thrown away.

So timing does not change the numbers of a run. Phases apart take longer than the fused step, in which the compiler
joins them, so the fused step is timed too, on a copy of the state.
"""

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import jax

from lapwing.core import format_seconds
from lapwing.journal import RunWriter
from lapwing.timing import Laps, LapSummary, PhaseTimes

from ._carry import Carry
from ._config import FitConfig
from ._feed import Fed
from ._state import State, copy_of
from ._step import Phases, take_step

FUSED = "fused"
WAIT = "wait for data"
_SAVED_EVERY_S = 5.0
_SHARE, _SELDOM = 0.01, 100
_FIRST_CALLS = 4  # The first of them is not part of the statistics, which leaves three.


@dataclass(frozen=True)
class StepTimes:
    """Times of the phases apart, and of the fused call of `steps_per_call` steps."""

    phases: LapSummary
    fused: PhaseTimes
    steps_per_call: int

    @property
    def seconds_per_step(self) -> float | None:
        """Median of the fused call; None before it was timed."""
        return None if self.fused.p50 is None else self.fused.p50 / self.steps_per_call

    @property
    def compiling_seconds(self) -> float:
        """Time spent tracing, lowering and compiling the fused call."""
        return sum(filter(None, [self.fused.trace, self.fused.lower, self.fused.compile]))

    def to_json(self) -> dict[str, Any]:
        """A lap summary and the fused call, for laps.json."""
        fused = {**asdict(self.fused), "steps_per_call": self.steps_per_call}
        return {**self.phases.to_json(), "fused": fused}

    def __str__(self) -> str:
        """A table for a narrow terminal: the phases, their sum, and the fused step."""
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

    def __init__(self, config: FitConfig):
        self.every = config.laps_every
        self._steps_per_call = config.steps_per_call
        self._started, self._spent, self._compiles = time.perf_counter(), 0.0, False
        self._clock, self._fused_clock = _PausedClock(), _PausedClock()
        self._laps = Laps(clock=self._clock, sync=jax.block_until_ready)
        self._fused = Laps(clock=self._fused_clock, sync=jax.block_until_ready)
        # The clocks stand still between timed calls, so a step of these laps is a timed call and nothing else.
        self._laps.step()
        self._fused.step()
        self._fused(FUSED)  # Known from now on, so that it is in the summary even if it never runs.

    def is_due(self, call: int, count: int) -> bool:
        """Whether to time this call, counted from 0. A shorter last call is not like the others. A run that is
        timed seldom is not slowed down: it waits until what timing has cost is a small part of the whole."""
        if not self.every or count != self._steps_per_call:
            return False
        if call < _FIRST_CALLS:
            return True
        share = _SHARE if self.every >= _SELDOM else math.inf
        return call % self.every == 0 and self._spent < share * (time.perf_counter() - self._started)

    @contextlib.contextmanager
    def compiling(self, path: str, stage: Literal["trace", "lower", "compile"]) -> Iterator[None]:
        """Times a stage of compiling the fused call or a phase."""
        self._compiles = True
        if path != FUSED:
            with self._laps.compiling(path, stage):  # Phases are compiled while `time` runs them.
                yield
        else:
            with self._fused_clock, self._fused.compiling(path, stage):
                yield

    def time(
        self,
        state: State,
        carry: Carry,
        fed: Fed,
        fused: Callable[[Carry, Fed], Any],
        phases: Callable[..., Phases],
        waited: float | None,
    ) -> None:
        """Runs the next step fused, from a copy of the carry, and in `phases`, from its state, and waits for each. No
        batch is used up: both get what the step is fed. `waited` is the time that the host waited for it."""
        started, self._compiles = time.perf_counter(), False
        copy = jax.block_until_ready(copy_of(carry))
        first = fed._replace(each=jax.tree.map(lambda leaf: leaf[0], fed.each))
        with self._fused_clock:
            self._lap(self._fused, FUSED, fused, copy, fed)
            self._fused.step()
        with self._clock:
            if waited is not None:
                with self._laps(WAIT):
                    self._clock.add(waited)
            take_step(phases(functools.partial(self._lap, self._laps)), state, first)
            self._laps.step()
        if not self._compiles:
            self._spent += time.perf_counter() - started

    def times(self) -> StepTimes:
        return StepTimes(self._laps.summary(), self._fused.summary().phases[0], self._steps_per_call)

    def _lap(self, laps: Laps, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        with laps(name) as phase:
            return phase.wait_for(function(*arguments))


class LapsFile:
    """Writes the times of a run into its folder, now and then and at the end."""

    def __init__(self, run: RunWriter | None, timer: PhaseTimer):
        self._run, self._timer = run, timer
        self._last = time.monotonic()

    def save_if_late(self) -> None:
        if time.monotonic() - self._last > _SAVED_EVERY_S:
            self.save()

    def save(self) -> None:
        self._last = time.monotonic()
        if self._run and self._timer.every:
            self._run.save_laps(self._timer.times().to_json())


class _PausedClock:
    """A clock that runs only inside a `with` block."""

    def __init__(self) -> None:
        self._total = 0.0
        self._since: float | None = None

    def __call__(self) -> float:
        return self._total if self._since is None else self._total + time.perf_counter() - self._since

    def add(self, seconds: float) -> None:
        """Time that was measured elsewhere."""
        self._total += seconds

    def __enter__(self) -> None:
        self._since = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._total = self()
        self._since = None
