"""When checkpoints are written, and what is in them beside the state."""

import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from lapwing.journal import JournalError, RunWriter

from ._checkpoints import Checkpoint, CheckpointError, Checkpoints
from ._config import Checkpointing
from ._devices import on_devices_of, on_one_device
from ._processes import shared, told
from ._state import State, copy_of


class Place(NamedTuple):
    """A state of the run that it can go on from: nobody uses this copy up. `record` is what the host knew then."""

    step: int
    state: State
    record: Mapping[str, Any]


class Saver:
    """Writes the state now and then, and the best one beside it. Without a run folder it does nothing."""

    def __init__(self, run: RunWriter | None, plan: Checkpointing):
        self._run = run
        self._plan = plan
        self._checkpoints = Checkpoints(run.checkpoints, keep_every=plan.keep_every) if run else None
        self._last = time.monotonic()
        self._best: tuple[Place, int] | None = None
        self.asked = False

    def is_late(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() - self._last > self._plan.seconds

    def is_due(self, done: int, before: int) -> bool:
        """Whether to save after `done` steps, the last call having begun after `before`."""
        plan = self._plan
        return self.asked or any(passes(every, done, before) for every in (plan.every, plan.keep_every))

    def save(self, now: Place, best: Place) -> None:
        """Begins to write; `now` holds the loop's own state, which is copied."""
        self.asked, self._last = False, time.monotonic()
        if self._checkpoints is None:
            return
        self.tell_failure()
        if self._best is None or self._best[0] is not best:
            self._best = best, self._checkpoints.save(on_one_device(best.state), best.step, best.record)
        serial = self._best[1]
        record = {**now.record, "best": serial}
        self._checkpoints.save(copy_of(on_one_device(now.state)), now.step, record, protect=[serial])

    def finish(self) -> None:
        """Waits until everything is on disk; raises an error if it is not."""
        if self._checkpoints:
            self._checkpoints.wait()

    def close(self) -> None:
        if self._checkpoints:
            self._checkpoints.close()

    def newest(self, like: State) -> tuple[Place, Place] | None:
        """The newest sound place to go on from, and the best one beside it, on the devices of `like`."""
        now, best = self._read_newest(on_one_device(like)) or (None, None)
        now, found = _shared(now, like), _shared(best, like)
        if now is None or found is None:
            return None
        if self._best:
            self._best = found, self._best[1]
        return now, found

    def _read_newest(self, like: State) -> tuple[Place, Place] | None:
        found = self._checkpoints.newest_sound(like) if self._checkpoints else None
        if found is None:
            return None
        state, checkpoint, passed_over = found
        now = Place(checkpoint.step, state, checkpoint.record)
        best = self._find(checkpoint.record.get("best"))
        try:
            restored = self._restore(like, best) if best else now
        except CheckpointError as error:
            passed_over, restored = [*passed_over, str(error)], now
        if best and restored is not now:
            self._best = restored, best.serial
        for sentence in passed_over:
            self._tell("damaged checkpoint", sentence)
        return now, restored

    def at_step(self, like: State, step: int) -> Place:
        """The newest checkpoint of a step; an error names those that are there."""
        if self._checkpoints:
            self._checkpoints.wait()
        there = self._checkpoints.all() if self._checkpoints else []
        steps = told(sorted({checkpoint.step for checkpoint in there}))
        if step not in steps:
            raise CheckpointError(
                f"there is no checkpoint of step {step}; there are: {', '.join(map(str, steps)) or 'none'}"
            )
        newest = next((each for each in there[::-1] if each.step == step), None)
        place = _shared(self._restore(on_one_device(like), newest) if newest else None, like)
        assert place is not None
        return place

    def tell_failure(self) -> None:
        """Says so if a checkpoint could not be written; the run goes on, and the next one may be."""
        if self._checkpoints and (sentence := self._checkpoints.failed()):
            self._best = None  # Perhaps it was this one: it is written again.
            self._tell("checkpoint failed", sentence)

    def _find(self, serial: int | None) -> Checkpoint | None:
        assert self._checkpoints is not None
        return next((each for each in self._checkpoints.all() if each.serial == serial), None)

    def _restore(self, like: State, checkpoint: Checkpoint) -> Place:
        assert self._checkpoints is not None
        return Place(checkpoint.step, self._checkpoints.restore(like, checkpoint), checkpoint.record)

    def _tell(self, event: str, sentence: str) -> None:
        print(f"lapwing: {sentence}", file=sys.stderr)
        try:
            if self._run:
                self._run.event(event, sentence)
        except JournalError:
            pass  # The disk that had no room for the checkpoint may have none for this either.


def _shared(place: Place | None, like: State) -> Place | None:
    """A place that the first process has read, for all of them, on the devices of `like`."""
    about = told(place and (place.step, place.record))
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
