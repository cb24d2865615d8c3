"""The callbacks of a run: they are shown what happens, and cannot change it."""

import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lapwing.task import Callback, CallbackEvent

from ._devices import on_one_device
from ._processes import is_first
from ._state import copy_of

if TYPE_CHECKING:
    from ._loop import TrainingLoop


class Callbacks:
    """Calls the callbacks, in the first process only. After the first exception none is called any more, and `failure`
    says what happened."""

    def __init__(self, callbacks: Sequence[Callback]):
        self._callbacks = tuple(callbacks) if is_first() else ()
        self.failure: str | None = None

    def notify(self, method: str, loop: "TrainingLoop", **more: Any) -> list[str]:
        """The texts that the callbacks return."""
        if not self._callbacks:
            return []
        event = CallbackEvent(
            step=loop.position.done,
            metrics=loop.newest_metrics,
            run=loop.run,
            get_state=lambda: copy_of(on_one_device(loop.position.state)),
            **more,
        )
        said = []
        for callback in self._callbacks:
            if self.failure is None:
                said.append(self._call(callback, method, event))
        return [text for text in said if text]

    def _call(self, callback: Callback, method: str, event: CallbackEvent) -> str | None:
        try:
            return getattr(callback, method)(event)
        except Exception as error:
            name = f"{type(callback).__name__}.{method}"
            self.failure = f"the callback {name} failed at step {event.step}: {type(error).__name__}: {error}"
            trace = traceback.format_exc()
            print(trace, file=sys.stderr)
            if event.run:
                event.run.event("callback failed", self.failure, step=event.step, callback=name, trace=trace)
            return None
