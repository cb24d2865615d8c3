"""When checkpoints are written, and what is stored with the state."""

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from lapwing.journal import JournalError, RunWriter

from ._checkpoints import Checkpoint, CheckpointError, Checkpoints
from ._config import Checkpointing
from ._devices import on_devices_of, on_one_device
from ._processes import broadcast_from_first, shared
from ._state import State, copy_of


class Place:
    """A state to resume from, which nobody donates, and what the host knew at that step. The state may be given as a
    function: it is made when it is needed, which for most of the best ones is never."""

    def __init__(self, step: int, state: State | Callable[[], State], record: Mapping[str, Any]):
        self.step, self.record = step, record
        self._state = state

    @functools.cached_property
    def state(self) -> State:
        return self._state() if callable(self._state) else self._state


class Saver:
    """Writes the state from time to time, and the best one with it. Without a run folder it does nothing."""

    def __init__(self, run: RunWriter | None, plan: Checkpointing):
        self._run = run
        self._plan = plan
        self._checkpoints = (
            Checkpoints(run.checkpoints, keep_every=plan.keep_every, sync=run.sync) if run else None
        )
        self._last = time.monotonic()
        self._best: tuple[Place, int] | None = None  # The best that is on disk, and its serial.
        self.asked = False
        self.has_lost_best = False
        """Whether the best state could not be read, and the newest has taken its place."""

    def is_late(self) -> bool:
        """Whether it is time for a checkpoint, and the one before is on disk: a slow disk never stops the loop."""
        is_busy = self._checkpoints is not None and self._checkpoints.is_busy
        return time.monotonic() - self._last > self._plan.seconds and not is_busy

    @property
    def every(self) -> tuple[int, int]:
        """The numbers of steps at whose multiples it saves; 0 for none."""
        return self._plan.every, self._plan.keep_every

    def is_due(self, done: int, before: int) -> bool:
        """Whether to save after `done` steps, if the last call began after `before`."""
        return self.asked or any(passes(every, done, before) for every in self.every)

    def save(self, now: Place, best: Place) -> None:
        """Starts to write. The state in `now` is the loop's own and is copied."""
        self.asked, self._last = False, time.monotonic()
        if self._checkpoints is None:
            return
        self._report_failure()
        if self._best is None or self._best[0] is not best:
            self._best = best, self._checkpoints.save(on_one_device(best.state), best.step, best.record)
        record = {**now.record, "best": self._best[1]}
        self._checkpoints.save(copy_of(on_one_device(now.state)), now.step, record)

    def _report_failure(self) -> None:
        """The run continues, and the next checkpoint may succeed."""
        if self._checkpoints and (error := self._checkpoints.failed()):
            self._best = None  # It may be the one that failed.
            self._report("checkpoint failed", error)

    def finish(self) -> None:
        """Returns when everything is on disk; raises if it is not."""
        if self._checkpoints:
            self._checkpoints.wait()

    def close(self) -> None:
        if self._checkpoints:
            self._checkpoints.close()

    def newest(self, like: State) -> tuple[Place, Place] | None:
        """The newest complete checkpoint and the best one with it, on the devices of `like`."""
        now, best = self._read_newest(on_one_device(like)) or (None, None)
        now, best = _from_first(now, like), _from_first(best, like)
        self.has_lost_best = broadcast_from_first(self.has_lost_best)
        if now is None or best is None:
            return None
        if self._best:
            self._best = best, self._best[1]
        return now, best

    def _read_newest(self, like: State) -> tuple[Place, Place] | None:
        found = self._checkpoints.newest_sound(like) if self._checkpoints else None
        if self._checkpoints is None or found is None:
            return None
        state, checkpoint, errors = found
        now = best = Place(checkpoint.step, state, checkpoint.record)
        serial = checkpoint.record.get("best")
        try:
            if serial is not None:
                best = self._restore(like, self._checkpoints.find(serial))
                self._best = best, serial
        except CheckpointError as error:
            self.has_lost_best = True
            errors.append(
                f"{error}; the best state is lost, that of step {now.step} takes its place, and the search for the "
                "best starts again there"
            )
        for error in errors:
            self._report("damaged checkpoint", error)
        return now, best

    def at_step(self, like: State, step: int) -> Place:
        """The newest checkpoint of a step; an error names the steps that have one."""
        if self._checkpoints:
            self._checkpoints.wait_for_writes()
            self._report_failure()
        found = self._checkpoints.all() if self._checkpoints else []
        steps = broadcast_from_first(sorted({checkpoint.step for checkpoint in found}))
        if step not in steps:
            raise CheckpointError(
                f"there is no checkpoint of step {step}; there are: {', '.join(map(str, steps)) or 'none'}"
            )
        newest = next((each for each in found[::-1] if each.step == step), None)
        place = _from_first(self._restore(on_one_device(like), newest) if newest else None, like)
        assert place is not None
        return place

    def _restore(self, like: State, checkpoint: Checkpoint) -> Place:
        assert self._checkpoints is not None
        return Place(checkpoint.step, self._checkpoints.restore(like, checkpoint), checkpoint.record)

    def _report(self, event: str, error: str) -> None:
        print(f"lapwing: {error}", file=sys.stderr)
        if run := self._run:
            # A disk without room for the checkpoint may have none for this either; a run that is refused has no event.
            with contextlib.suppress(JournalError):
                run.when_begun(lambda: run.event(event, error))


def _from_first(place: Place | None, like: State) -> Place | None:
    """What the first process has read, for all of them, on the devices of `like`."""
    about = broadcast_from_first(place and (place.step, place.record))
    if about is None:
        return None
    step, record = about
    state = shared(place.state if place else on_one_device(like))
    return Place(step, on_devices_of(like, state), record)


def passes(every: int, done: int, before: int) -> bool:
    """Whether the steps from `before` to `done` reached or passed a multiple of `every`.

    >>> passes(10, 12, 8), passes(10, 9, 8), passes(0, 12, 8)
    (True, False, False)
    """
    return every > 0 and done // every > before // every
