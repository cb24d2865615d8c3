"""What a run has made, and what is said about it at the end."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lapwing.core import format_seconds
from lapwing.journal import RunWriter
from lapwing.task import Params

from ._devices import on_one_device
from ._loop import TrainingLoop
from ._rule import EndRun
from ._state import State
from ._timer import StepTimes


@dataclass(frozen=True)
class FitResult:
    """How a run ended, and everything it made. `metrics` are those of every step that was not undone; `best` is the
    best value of the metric that decides (`config.best`), found after `best_step` steps.

    >>> import jax.numpy as jnp
    >>> from lapwing.task import Task
    >>> from lapwing.train import FitConfig, fit
    >>> task = Task(
    ...     init=lambda key: jnp.zeros(()),
    ...     data=lambda key, step: 1.0,
    ...     loss=lambda w, x: ((w - x) ** 2, {"error": w - x}),
    ... )
    >>> result = fit(task, FitConfig(steps=3, laps_every=0), quiet=True)
    >>> result.ended, result.metrics["error"].shape, float(result.metrics["error"][0])
    ('finished', (3,), -1.0)
    """

    ended: Literal["finished", "stopped", "preempted", "failed"]
    outcome: str
    state: State
    metrics: Mapping[str, np.ndarray]
    evaluation: Mapping[str, float]
    times: StepTimes
    seconds: float
    rollbacks: int
    skipped: int
    best: float
    best_step: int

    @property
    def params(self) -> Params:
        return self.state.params


def conclude(loop: TrainingLoop) -> tuple[FitResult, str | None]:
    """Ends the run once everything is on disk; the result, and the text that the callbacks want to be printed."""
    ending = loop.finish_closing()
    result = FitResult(
        ended=ending.ended,
        outcome=_outcome(ending, loop),
        state=on_one_device(loop.position.state),
        metrics=loop.logbook.history(),
        evaluation=loop.logbook.evaluation,
        times=loop.program.timer.times(),
        seconds=loop.seconds,
        rollbacks=loop.rollbacks,
        skipped=loop.rules.trend.skipped,
        best=loop.rules.trend.best,
        best_step=loop.rules.trend.best_step,
    )
    closing = loop.callbacks.notify("on_end", loop, result=result)
    if loop.callbacks.failure and result.ended != "failed":
        ending = EndRun(loop.callbacks.failure, "failed")
        result = dataclasses.replace(result, ended=ending.ended, outcome=_outcome(ending, loop))
    if loop.run:
        best = {"best_metric": loop.config.best, "best": result.best, "best_step": result.best_step}
        loop.run.end(result.ended, result.outcome, steps=loop.position.done, **best, **result.evaluation)
    return result, "\n\n".join(closing) or None


def print_result(result: FitResult, run: RunWriter | None, closing: str | None) -> None:
    if result.times.phases.step.count:
        print(f"\n{result.times}\n")
    if closing:
        print(f"{closing}\n")
    print(f"{result.ended}: {result.outcome}")
    if run:
        for picture in run.pictures:
            print(f"picture: {picture}")
        print(f"`lapwing report {run.name}` draws its curves and makes a page of it")
        print(f"run folder: {run.folder}")


def _outcome(ending: EndRun, loop: TrainingLoop) -> str:
    account = f"{loop.position.done} steps in {format_seconds(loop.seconds)}{_account(loop)}"
    if ending.ended in ("stopped", "preempted"):
        return f"{ending.reason}, after {account}"
    return f"{ending.reason}; {account}" if ending.reason else account


def _best(loop: TrainingLoop) -> list[str]:
    """The best evaluation or other metric; that of the loss is said anyway."""
    is_known = loop.config.best != "loss" and loop.rules.best_in_words
    return [f"{loop.rules.best_in_words} at step {loop.rules.trend.best_step}"] if is_known else []


def _account(loop: TrainingLoop) -> str:
    """The loss, the evaluation and the accidents in half a sentence."""
    losses = loop.logbook.history().get("loss", np.zeros(0))
    if not len(losses):
        return ""
    lowest = losses.min(where=np.isfinite(losses), initial=math.inf)
    counts = {"rollbacks": loop.rollbacks, "updates skipped as not finite": loop.rules.trend.skipped}
    return ", ".join(
        [
            f": loss {losses[0]:.4g} → {losses[-1]:.4g} (lowest {lowest:.4g})",
            *(f"{name} {value:.4g}" for name, value in loop.logbook.evaluation.items()),
            *_best(loop),
            *(f"{count} {name}" for name, count in counts.items() if count),
        ]
    )
