"""Laps: where the time of a step goes, by named phases that nest.

The step is the root of the tree of phases. Each lap is first added to the tally of the current step; when the step
closes, its tallies are added to those of the run, or dropped if the step was not *steady*, that is, if something in it
ran for the first time or was compiled. So all statistics are over the same steps, and the parts sum to the whole.

Wrong nesting cannot corrupt the numbers. Entering a phase in the wrong place and closing a step inside a phase raise an
error. Leaving in the wrong order (a generator that is resumed inside another phase) cannot raise without hiding an
exception in flight: the inner phases are closed with the outer one, and counted in `misnested`.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import current_thread, get_ident
from typing import Any

from ._phase import STAGES, UNACCOUNTED, Phase, Stage, check_name
from ._series import Bars
from ._stopwatch import Clock
from ._summary import LapSummary, phase_times
from ._tally import Tally
from ._trace import Events, write_trace

MOST_PHASES = 256
BARS = 256


class Laps:
    """Times the phases of a step.

    >>> import itertools
    >>> laps = Laps(clock=itertools.count().__next__)   # a clock that advances one second per call
    >>> for _ in range(3):
    ...     with laps("attack"):
    ...         with laps("forward"):
    ...             pass
    ...     with laps("update"):
    ...         pass
    ...     laps.step()
    >>> [(phase.path, phase.count, phase.mean) for phase in laps.summary().phases]
    [('attack', 2, 3.0), ('attack/forward', 2, 1.0), ('update', 2, 1.0)]

    **Steps.** `laps.step()` closes one step and opens the next at the same instant. The first step is opened by the
    first phase, or by a first call of `step()`. Time of a step outside all phases is reported as `unaccounted`.

    **Device work** is asynchronous: a call returns before its result is computed, and the time shows up in whichever
    phase waits next. To wait inside the right phase, `with laps("attack", sync=f)` calls `f()` at the end of the phase,
    and `phase.wait_for(value)` calls the `sync` given to `Laps` at once and returns the value:

        laps = Laps(sync=jax.block_until_ready)
        with laps("attack") as phase:
            images = phase.wait_for(attack(params, batch))

    **First calls** trace and compile, so the first lap of each phase is reported separately as `first`. Code that
    compiles ahead of time records the stages with `with laps.compiling("forward", "trace")` (or "lower", "compile"). A
    step with a first call or a stage in it is not steady and is excluded from the statistics.

    **Wall and processor time.** Waiting for the device counts in wall time (`clock`). It does not count in processor
    time while the process sleeps; but a driver that spins uses the processor, and so do the threads that compute for a
    CPU device, so processor time can exceed wall time. `cpu=True` also records `time.process_time`; another clock can
    be given instead (`cpu=time.thread_time`).

    **Threads.** A `Laps` belongs to the thread that uses it first; another thread gets an error and needs its own.

    Memory is bounded: quantiles come from a fixed sample, the series of steps is coarsened as it grows, the trace keeps
    the first and last `trace_events` / 2 events, and there are at most 256 phases.
    """

    def __init__(
        self,
        *,
        sync: Callable[[Any], object] | None = None,
        cpu: bool | Clock = False,
        clock: Clock = time.perf_counter,
        trace_events: int = 10_000,
    ) -> None:
        self._sync = sync
        self._clock = clock
        self._cpu_clock: Clock | None = (time.process_time if cpu is True else cpu) or None
        # A generator of its own: the same laps give the same quantiles, and no other random numbers change.
        self._random = random.Random(0).random
        self._root = Phase(self, None, "step", self._random)
        self._unaccounted = Phase(self, self._root, UNACCOUNTED, self._random)
        self._phases: list[Phase] = []
        self._current = self._root
        self._thread: int | None = None
        self._thread_name = ""
        self._in_step = False
        self._steady = True
        self._steps = 0
        self._excluded = Tally(0, self._random)
        self._misnested = 0
        self._bars = Bars(BARS)
        self._events = Events(trace_events)

    def __call__(self, name: str, sync: Callable[[], object] | None = None) -> Phase:
        """The phase `name` inside the currently open phase, for a with-statement: `with laps("attack"):`."""
        if self._thread != get_ident():
            self._claim_thread()
        phase = self._current.children.get(name)
        if phase is None:
            phase = self._add_phase(self._current, name)
        phase.sync = sync
        return phase

    def step(self) -> None:
        """Closes the step and opens the next; the first call, when no step is open, only opens one."""
        if self._thread != get_ident():
            self._claim_thread()
        if self._current is not self._root:
            raise RuntimeError(
                f"laps.step() was called inside the phase {self._current.path!r}; "
                "expected all phases of the step to be closed: move the call out of the with-block"
            )
        now = self._clock()
        cpu = self._cpu_clock() if self._cpu_clock is not None else 0.0
        if self._in_step:
            self._close_step(now, cpu)
        self._open_step(now, cpu)

    @contextmanager
    def compiling(self, path: str, stage: Stage) -> Iterator[None]:
        """Times a stage of ahead-of-time compilation for the phase `path` ("step", "attack/forward").

        >>> laps = Laps()
        >>> with laps.compiling("forward", "trace"):
        ...     pass  # traced = jax.jit(forward).trace(params, batch)
        >>> laps.summary().phases[0].trace >= 0
        True
        """
        if stage not in STAGES:
            raise ValueError(f"expected a stage of {', '.join(map(repr, STAGES))}, found {stage!r}")
        if self._thread != get_ident():
            self._claim_thread()
        phase = self._find_phase(path)
        start = self._clock()
        try:
            yield
        finally:
            end = self._clock()
            phase.stages[stage] = phase.stages.get(stage, 0.0) + end - start
            self._steady = False
            self._events.add((f"{path} ({stage})", start, end, self._steps))

    def summary(self) -> LapSummary:
        """The measurements of all closed steps."""
        times = partial(phase_times, whole=self._root.steady.total, with_cpu=self._cpu_clock is not None)
        return LapSummary(
            step=times(self._root),
            phases=tuple(times(phase) for phase in self._root.descendants()),
            unaccounted=times(self._unaccounted),
            apart=self._excluded.count,
            apart_seconds=self._excluded.total,
            misnested=self._misnested,
            series=self._bars.series((UNACCOUNTED, *self._root.children)),
        )

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the laps as a Chrome trace, for ui.perfetto.dev."""
        write_trace(self._events, path)

    def _enter(self, phase: Phase) -> None:
        if self._current is not phase.parent:
            raise RuntimeError(
                f"the phase {phase.path!r} was entered inside {self._current.path!r}, where it was not made; "
                f"write `with laps({phase.name!r}):` where the work is"
            )
        self._current = phase
        if self._cpu_clock is not None:
            phase.cpu_start = self._cpu_clock()
        phase.start = now = self._clock()
        if not self._in_step:
            self._open_step(now, phase.cpu_start)

    def _leave(self, phase: Phase) -> None:
        now = self._clock()
        cpu = self._cpu_clock() if self._cpu_clock is not None else 0.0
        if self._current is not phase and not self._close_inside(phase, now, cpu):
            return
        self._close(phase, now, cpu)

    def _close(self, phase: Phase, now: float, cpu: float) -> None:
        self._current = phase.parent or self._root
        seconds = now - phase.start
        phase.step.add(seconds)
        phase.step.cpu += cpu - phase.cpu_start
        self._events.add((phase.path, phase.start, now, self._steps))
        if phase.first is None:
            phase.first = seconds
            self._steady = False

    def _close_inside(self, phase: Phase, now: float, cpu: float) -> bool:
        """Closes the phases open inside `phase`; False if `phase` itself was closed like that before."""
        inside = []
        open_phase: Phase | None = self._current
        while open_phase is not phase:
            if open_phase is None:
                return False
            inside.append(open_phase)
            open_phase = open_phase.parent
        for each in inside:
            self._close(each, now, cpu)
        self._misnested += len(inside)
        return True

    def _open_step(self, now: float, cpu: float) -> None:
        self._in_step = True
        self._root.start = now
        self._root.cpu_start = cpu

    def _close_step(self, now: float, cpu: float) -> None:
        root = self._root
        seconds = now - root.start
        if root.first is None:
            root.first = seconds
            self._steady = False
        self._events.add((root.path, root.start, now, self._steps))
        if self._steady:
            self._keep_step(seconds, cpu - root.cpu_start)
        else:
            self._excluded.add(seconds)
        for phase in self._phases:
            phase.step.clear()
        self._steady = True
        self._steps += 1

    def _keep_step(self, seconds: float, cpu: float) -> None:
        tops = [phase.step for phase in self._root.children.values()]
        parts = [tally.total for tally in tops]
        # Rounding can make the sum of the parts exceed the whole by a last digit.
        rest = max(0.0, seconds - sum(parts))
        root, unaccounted = self._root.steady, self._unaccounted.steady
        root.add(seconds)
        root.cpu += cpu
        unaccounted.add(rest)
        unaccounted.cpu += max(0.0, cpu - sum(tally.cpu for tally in tops))
        self._bars.add([rest, *parts])
        for phase in self._phases:
            phase.steady.absorb(phase.step)

    def _find_phase(self, path: str) -> Phase:
        phase = self._root
        for name in path.split("/"):
            phase = phase.children.get(name) or self._add_phase(phase, name)
        return phase

    def _add_phase(self, parent: Phase, name: str) -> Phase:
        check_name(name)
        if len(self._phases) == MOST_PHASES:
            raise ValueError(
                f"Laps keeps at most {MOST_PHASES} phases and found one more, {name!r}; "
                "name the kind of work, not the item: laps('attack'), not laps(f'attack {i}')"
            )
        phase = parent.children[name] = Phase(self, parent, name, self._random)
        self._phases.append(phase)
        return phase

    def _claim_thread(self) -> None:
        if self._thread is not None:
            raise RuntimeError(
                f"this Laps belongs to the thread {self._thread_name!r} and was used in "
                f"{current_thread().name!r}; make one Laps for each thread"
            )
        self._thread = get_ident()
        self._thread_name = current_thread().name
