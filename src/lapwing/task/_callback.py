"""Callbacks: functions of the host that look at a run while it is trained, to draw, to log or to report.

Rules decide, callbacks look: a rule (`lapwing.train.Rule`) returns decisions that depend on the metrics by step alone,
so that a resumed run decides the same; a callback may do anything, and changes nothing about the numbers of the run.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax


@dataclass(frozen=True)
class CallbackEvent:
    """What a callback is given. `metrics` are the newest metrics and the newest evaluation after `step` steps; `run` is
    the run folder (`run.log`, `run.add_picture`) or None; `reason` says why there was a rollback; `result` is that of
    `fit`, at the end.

    >>> event = CallbackEvent(100, {"loss": 0.5}, run=None, get_state=lambda: None)
    >>> f"{event.metrics['loss']} after {event.step} steps"
    '0.5 after 100 steps'
    """

    step: int
    metrics: Mapping[str, float]
    run: Any
    get_state: Callable[[], Any] = field(repr=False)
    reason: str = ""
    result: Any = None

    @functools.cached_property
    def state(self) -> Any:
        """A copy of the state of the run, on the device."""
        return self.get_state()

    @functools.cached_property
    def params(self) -> Any:
        """The parameters as numpy arrays. They are fetched from the device when they are asked for."""
        return jax.device_get(self.state.params)


class Callback:
    """Looks at a run. Inherit from it and override what you need.

    An exception in a callback ends the run as failed, with a checkpoint.

    >>> class Norms(Callback):
    ...     def on_evaluation(self, event):
    ...         print(event.step, event.metrics["eval_loss"], event.params["w"].shape)
    """

    def on_evaluation(self, event: CallbackEvent) -> None:
        """Called after each evaluation."""

    def on_checkpoint(self, event: CallbackEvent) -> None:
        """Called when a checkpoint is written; a thread may still be writing it."""

    def on_rollback(self, event: CallbackEvent) -> None:
        """Called after a return to an earlier step, which `event.step` is."""

    def on_end(self, event: CallbackEvent) -> str | None:
        """Called at the end, when everything is on disk. The text that it returns is printed."""
