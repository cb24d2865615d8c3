"""The watchers of a run in its loop: what they are shown, and when a step is probed or replayed for them."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ._devices import on_one_device
from ._feed import Fed
from ._probe import Probe, Timing
from ._processes import are_several
from ._replay import Recent, batch_at, replay
from ._state import State
from ._step import SKIPPED
from ._transfer import Rows
from ._watchers import Watchers

if TYPE_CHECKING:
    from ._loop import TrainingLoop


class Watching:
    """Shows a run to its watchers. Probes and replays are of one process: several would have to agree on the time."""

    def __init__(self, loop: "TrainingLoop"):
        self._loop = loop
        config, program = loop.config, loop.program
        self._watchers = Watchers(config, loop.run, loop.say, self._chance, program.task.classes)
        self.recent = Recent()
        self._probe: Probe | None = None
        self._timing = Timing(config.watch.every, lambda: program.timer.times().compiling_seconds)

    def on_metrics(self, rows: Rows) -> None:
        """Takes the metrics of some steps. The first step that is not finite is replayed."""
        loop = self._loop
        is_new = loop.feed.is_first_pass(rows.steps.start) and not loop.config.overfit_batch
        self._watchers.on_steps(rows, is_new)
        skipped = np.flatnonzero(rows.columns[SKIPPED])
        if len(skipped) and self._watchers.is_on("not_finite"):
            self._find_not_finite(rows, int(skipped[0]))
        self.recent.clear()

    def _find_not_finite(self, rows: Rows, row: int) -> None:
        step = rows.steps.start + row
        what = "the gradient" if np.isfinite(rows.columns["loss"][row]) else "the loss"
        found = None if are_several() else replay(self._loop, rows, step)
        if found is not None:
            said, evidence = found.said, found.evidence()
        else:
            why = "there are several processes" if are_several() else "its batch is gone"
            said, evidence = f"{why}, so the step is not replayed", {}
        self._watchers.speak("not_finite", step, f"{what} is not finite: {said}", **evidence)

    def keep_fed(self, step: int, count: int, fed: Fed) -> None:
        """Keeps what a stream feeds to a call until its metrics are there: it cannot be read again."""
        if self._loop.feed.is_stream and (self._watchers.is_on("not_finite") or self._watchers.is_on("leak")):
            self.recent.add(step, count, fed)

    def probe_if_due(self, get_state: Callable[[], State], fed: Fed) -> None:
        """Looks into the next step, beside the training, if that is due."""
        loop, step = self._loop, self._loop.position.done
        if not self._timing.is_reached(step) or not self._watchers.wants_probe or are_several():
            return
        if not self._timing.is_due(step):
            return
        program = loop.program
        if self._probe is None or program.task.rounds is not None:  # A round may change the loss.
            self._probe = Probe(program.task, program.mask, loop.config, program.phases_of_one())
        probe = self._probe
        self._watchers.on_probe(self._timing.measure(lambda: probe(step, get_state(), fed)))

    def on_evaluation(self, step: int, evaluation: Mapping[str, float]) -> None:
        self._watchers.on_evaluation(step, evaluation)

    def roll_back(self, step: int) -> None:
        self._watchers.roll_back(step)
        self._timing.start(step)
        self.recent.clear()

    def to_json(self) -> dict[str, Any]:
        return self._watchers.to_json()

    def restore(self, record: Mapping[str, Any] | None, step: int) -> None:
        self._watchers.restore(record)
        self._timing.start(step)

    def _chance(self) -> tuple[float, str] | None:
        """The loss of a model that ignores its inputs, for labels, and what it does; None if that is not known."""
        task = self._loop.program.task
        if task.targets is not None and not are_several():
            batch = batch_at(self._loop, self._loop.position.done - 1)
            if batch is not None:
                return _chance_of(np.asarray(task.targets(on_one_device(batch))))
        return (
            (math.log(task.classes), f"a uniform guess among {task.classes} classes")
            if task.classes
            else None
        )


def _chance_of(labels: np.ndarray) -> tuple[float, str] | None:
    """Of labels: the entropy of their frequencies.

    >>> round(_chance_of(np.array([0, 1, 1, 0]))[0], 3)
    0.693
    """
    if labels.dtype.kind not in "iub":
        return None
    _, counts = np.unique(labels, return_counts=True)
    share = counts / counts.sum()
    return float(-(share * np.log(share)).sum()), "predicting the frequencies of the labels"
