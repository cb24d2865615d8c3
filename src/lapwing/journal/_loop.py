"""A loop of your own as a run: what happens between two of its steps.

`run.steps(n)` is a generator around the caller's loop body. When the body comes back for the next step, the step is
timed, commands are carried out, a checkpoint is saved if one is due, and a paused run waits. Ctrl-C, SIGTERM and the
command stop let the body finish; then the loop ends as if it had no more steps, and the code after it still runs.

A poll of the inbox costs 2 µs, which is much for a step of 5, so the inbox is polled at most every 20 ms. What is done
between two steps counts for none of them.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lapwing.core import Interrupt, format_seconds, interrupts
from lapwing.timing import Laps

from ._errors import JournalError
from ._inbox import Command

if TYPE_CHECKING:
    from ._writer import RunWriter

POLL_EVERY_S = 0.02
POLL_PAUSED_EVERY_S = 0.05
SAVE_LAPS_EVERY_S = 10.0

Save = Callable[[int], object]


class StepClock:
    """A clock that stands still between the steps."""

    def __init__(self) -> None:
        self._away = 0.0

    def __call__(self) -> float:
        return time.perf_counter() - self._away

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._away += time.perf_counter() - start


class Loop:
    """The steps from `start` to `end` of a run, None for a loop without an end."""

    def __init__(
        self,
        run: "RunWriter",
        start: int,
        end: int | None,
        save: Save | None,
        save_every: int,
        stopped_by: str | None = None,
    ):
        self.run = run
        self.done = start
        self._end = end
        self._save = save
        self._save_every = save_every
        self._saved_at: int | None = None
        self._paused = False
        self._stopped_by = stopped_by
        self._clock = StepClock()
        self.laps = Laps(clock=self._clock)
        self._interrupt = Interrupt()
        self._started = time.monotonic()
        self._poll_after = 0.0
        self._save_laps_after = self._started + SAVE_LAPS_EVERY_S

    @property
    def stopped_by(self) -> str | None:
        """Who ended the loop before its last step: "the command stop", "Ctrl-C", "SIGTERM"."""
        return self._stopped_by or self._interrupt.reason

    @property
    def outcome(self) -> str:
        """What is said about it at the end."""
        account = f"{self.done} steps in {format_seconds(time.monotonic() - self._started)}"
        latest = self.run.latest()
        loss = f": loss {latest['loss']:.4g}" if isinstance(latest.get("loss"), float | int) else ""
        by = f"by {self.stopped_by}, after " if self.stopped_by else ""
        return f"{by}{account}{loss}"

    def steps(self) -> Iterator[int]:
        with interrupts() as self._interrupt:
            try:
                self._poll_if_due()
                self.laps.step()
                while not self._is_over():
                    self.run.step = self.done
                    try:
                        yield self.done
                    finally:  # Also if the body ends with a break.
                        self.done += 1
                    self.laps.step()
                    self._save_if_due()
                    self._poll_if_due()
                if self._save and self._saved_at != self.done:
                    self._save_checkpoint()
            finally:
                if not self.run.has_ended:
                    self.save_laps()

    def _is_over(self) -> bool:
        return self.stopped_by is not None or (self._end is not None and self.done >= self._end)

    def _save_if_due(self) -> None:
        if self._save and self._save_every and self.done % self._save_every == 0:
            self._save_checkpoint()

    def _poll_if_due(self) -> None:
        now = time.monotonic()
        if now < self._poll_after:
            return
        with self._clock.stopped():
            self._poll()
            if now >= self._save_laps_after:
                self.save_laps()
        self._poll_after = time.monotonic() + POLL_EVERY_S

    def _poll(self) -> None:
        """Carries out the commands that have arrived, and waits while the run is paused."""
        while True:
            for command in self.run.poll():
                self._answer(command)
            if not self._paused or self.stopped_by:
                return
            time.sleep(POLL_PAUSED_EVERY_S)

    def _answer(self, command: Command) -> None:
        try:
            outcome = getattr(self, f"_{command.name}")(**command.arguments)
        except JournalError as refusal:
            self.run.refused(command, str(refusal))
        else:
            self.run.applied(command, outcome, step=self.done)

    def save_laps(self) -> None:
        self._save_laps_after = time.monotonic() + SAVE_LAPS_EVERY_S
        self.run.save_laps(self.laps.summary().to_json())

    def _save_checkpoint(self) -> None:
        assert self._save is not None
        with self._clock.stopped():
            self.run.sync()
            self._save(self.done)
        self._saved_at = self.done

    # The commands of the table `COMMANDS`; each returns what it has done, or raises why it cannot.

    def _set(self, /, **wanted: float) -> str:
        return self.run.loop_controls.set(wanted)

    def _pause(self) -> str:
        if self._paused:
            raise JournalError("it is paused already; `lapwing resume` continues it")
        if self._save and self._saved_at != self.done:
            self._save_checkpoint()
        self._paused = True
        self.run.event("paused", step=self.done)
        return f"after step {self.done}"

    def _resume(self) -> str:
        if not self._paused:
            raise JournalError("it is not paused")
        self._paused = False
        self.run.event("unpaused", step=self.done)
        return f"from step {self.done}"

    def _stop(self) -> str:
        self._stopped_by = "the command stop"
        return f"after step {self.done}" + (", with a checkpoint" if self._save else "")

    def _checkpoint(self) -> str:
        if self._save is None:
            raise JournalError("this loop saves no checkpoints; write run.steps(n, checkpoint=save)")
        if self._saved_at != self.done:
            self._save_checkpoint()
        return f"of step {self.done}"

    def _rollback(self, to: Any) -> str:
        raise JournalError(
            "this loop cannot return to an earlier step; stop it and start it from a checkpoint"
        )

    def _laps(self, every: int) -> str:
        raise JournalError("this loop times every step")


def next_step(columns: Mapping[str, Any]) -> int:
    """The step after the last one in the metrics.

    >>> next_step({"step": [0.0, 1.0, 2.0]}), next_step({})
    (3, 0)
    """
    steps = [step for step in columns.get("step", ())[-1:] if step == step]
    return int(steps[0]) + 1 if steps else 0
