"""The training loop, from the first parameters to the last line of the journal."""

import contextlib
import functools
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lapwing.journal import RunWriter
from lapwing.timing import format_seconds

from ._config import FitConfig
from ._interrupt import interrupts
from ._logbook import Logbook
from ._phases import PhaseTimer, StepTimes
from ._progress import progress
from ._state import State, initial_state, shapes_of
from ._step import make_evaluation, make_parts
from ._task import Params, Task


@dataclass(frozen=True)
class FitResult:
    """How a training ended, with everything it made."""

    ended: Literal["finished", "stopped", "failed"]
    outcome: str
    state: State
    metrics: Mapping[str, np.ndarray]
    evaluation: Mapping[str, float]
    times: StepTimes
    seconds: float

    @property
    def params(self) -> Params:
        return self.state.params


def fit(task: Task, config: FitConfig, run: RunWriter | None = None, *, quiet: bool = False) -> FitResult:
    """Trains a task.

    The metrics of every step go into the run folder, if one is given. The run is ended here: as finished, as
    stopped (by Ctrl-C, after the step under way), or as failed (a loss that is not finite, or an exception).

    >>> import jax, jax.numpy as jnp
    >>> task = Task(
    ...     init=lambda key: {"w": jnp.zeros(3)},
    ...     batch=lambda key, step: jax.random.normal(key, (8, 3)),
    ...     loss=lambda params, x: (jnp.mean((x @ (params["w"] - 1)) ** 2), {}),
    ... )
    >>> result = fit(task, FitConfig(steps=200, rate=0.1, laps_every=0), quiet=True)
    >>> result.ended, bool(result.metrics["loss"][-1] < 0.01)
    ('finished', True)
    """
    start = time.monotonic()
    with run or contextlib.nullcontext(), interrupts() as interrupt:
        state, mask = initial_state(task, config)
        parts, evaluate = make_parts(task, mask), make_evaluation(task)
        timer = PhaseTimer(parts, config, run)
        compiled = functools.cache(functools.partial(timer.compile, shapes_of(state)))
        logbook = Logbook(run, config.log_every)

        done = 0
        with progress(config.steps, quiet) as shown:
            for call in itertools.count():
                count = min(config.steps_per_call, config.steps - done)
                if count == 0 or interrupt.reason or logbook.not_finite_at is not None:
                    break
                take_steps = compiled(count)
                if timer.is_due(call, count):
                    timer.time(state, take_steps)
                state, metrics = take_steps(state)
                done += count
                if logbook.add(done - count, count, metrics):
                    shown.show(done, logbook)
                if evaluate and _passes(config.evaluate_every, done, count):
                    logbook.add_evaluation(done, evaluate(state))
            if evaluate and not interrupt.reason and logbook.evaluated_at != done:
                logbook.add_evaluation(done, evaluate(state))
            logbook.finish()
            shown.show(done, logbook)

        ended, outcome = _outcome(interrupt.reason, logbook, done, time.monotonic() - start)
        result = FitResult(
            ended=ended,
            outcome=outcome,
            state=state,
            metrics=logbook.history(),
            evaluation=logbook.evaluation,
            times=timer.times(),
            seconds=time.monotonic() - start,
        )
        closing = task.finish(result, run) if task.finish else None
        if run:
            timer.save()
            run.end(ended, outcome, steps=done, **logbook.evaluation)
        if not quiet:
            _tell(result, run, closing)
    return result


def _passes(every: int, done: int, count: int) -> bool:
    """Whether the last `count` steps reached or passed a multiple of `every`."""
    return every > 0 and done // every > (done - count) // every


def _outcome(
    interrupted_by: str | None, logbook: Logbook, done: int, seconds: float
) -> tuple[Literal["finished", "stopped", "failed"], str]:
    account = f"{done} steps in {format_seconds(seconds)}{logbook.account()}"
    if logbook.not_finite_at is not None:
        advice = "a smaller rate, or a clip, may help"
        return "failed", f"the loss was not finite at step {logbook.not_finite_at}; {advice}; {account}"
    if interrupted_by:
        return "stopped", f"by {interrupted_by}, after {account}"
    return "finished", account


def _tell(result: FitResult, run: RunWriter | None, closing: str | None) -> None:
    if result.times.phases.step.count:
        print(f"\n{result.times}\n")
    if closing:
        print(f"{closing}\n")
    print(f"{result.ended}: {result.outcome}")
    if run:
        print(f"run folder: {run.folder}")
