"""The training loop, from the first parameters to the last line of the journal."""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import jax
import numpy as np

from lapwing.core import format_seconds
from lapwing.journal import RunWriter
from lapwing.task import Params, Task, TaskError

from ._config import ConfigError, FitConfig
from ._config_json import changes, in_words, settings_of
from ._devices import mesh_of, on_every_device, on_one_device, split_over
from ._ending import Ending
from ._engine import Engine
from ._interrupt import interrupts
from ._loop import Loop
from ._phases import StepTimes
from ._processes import are_several, is_first, losses_told, told
from ._progress import progress
from ._state import State, initial_state


@dataclass(frozen=True)
class FitResult:
    """How a training ended, with everything it made. `metrics` are those of every step that was not undone."""

    ended: Literal["finished", "stopped", "failed"]
    outcome: str
    state: State
    metrics: Mapping[str, np.ndarray]
    evaluation: Mapping[str, float]
    times: StepTimes
    seconds: float
    rollbacks: int
    skipped: int

    @property
    def params(self) -> Params:
        return self.state.params


def fit(
    task: Task,
    config: FitConfig,
    run: RunWriter | None = None,
    *,
    devices: int | None = None,
    quiet: bool = False,
    allow_change: bool = False,
) -> FitResult:
    """Trains a task.

    The metrics of every step go into the run folder, if one is given, and checkpoints, from which `Run.reopen` and
    this function go on. While it runs it takes commands from the folder's inbox. The run is ended here: as finished,
    as stopped (by Ctrl-C or a command, after the step under way), or as failed (a loss that stays not finite, or an
    exception). A config that is not the one of the checkpoint is refused, unless `allow_change`.

    With `devices`, each batch is split over so many of them (`docs/many-devices.md`); the numbers are the same up to
    rounding, and a run may be resumed on another number of them.

    >>> import jax, jax.numpy as jnp
    >>> task = Task(
    ...     init=lambda key: {"w": jnp.zeros(3)},
    ...     data=lambda key, step: jax.random.normal(key, (8, 3)),
    ...     loss=lambda params, x: (jnp.mean((x @ (params["w"] - 1)) ** 2), {}),
    ... )
    >>> result = fit(task, FitConfig(steps=200, learning_rate=0.1, laps_every=0), quiet=True)
    >>> result.ended, bool(result.metrics["loss"][-1] < 0.01)
    ('finished', True)
    """
    if are_several():
        _check_process(config, run)
    quiet = quiet or not is_first()
    with run or contextlib.nullcontext(), losses_told(), interrupts() as interrupt:
        with progress(config.steps, quiet) as shown:
            engine, state = started(task, config, devices)
            loop = Loop(engine, state, config, run, interrupt, shown.say, allow_change=allow_change)
            with contextlib.closing(loop.saver):
                while True:
                    loop.evaluate_if_due()
                    if loop.is_over():
                        break
                    loop.advance()
                    loop.look()
                    loop.listen()
                    loop.save_if_due()
                    shown.show(loop)
                ending = loop.close()
                shown.show(loop, last=True)
        return conclude(task, loop, ending, quiet)


def started(task: Task, config: FitConfig, devices: int | None = None) -> tuple[Engine, State]:
    """What computes a training, and the state that it begins with."""
    if devices is None and are_several():
        devices = jax.device_count()
    if devices is not None and task.rounds is not None:
        raise TaskError("a task with rounds is trained on one device; leave out devices")
    mesh = None if devices is None else mesh_of(devices)
    state, mask = initial_state(task, config)
    if mesh is None:
        return Engine(task, mask, config, state), state
    state = on_every_device(state, mesh)
    return Engine(task, mask, config, state, split_over(mesh, task.batch_axis)), state


def conclude(task: Task, loop: Loop, ending: Ending, quiet: bool) -> FitResult:
    """What a training has made, once everything is on disk; the run is ended."""
    result = FitResult(
        ended=ending.ended,
        outcome=_outcome(ending, loop),
        state=on_one_device(loop.state),
        metrics=loop.logbook.history(),
        evaluation=loop.logbook.evaluation,
        times=loop.timer.times(),
        seconds=loop.seconds,
        rollbacks=loop.rollbacks,
        skipped=loop.watch.skipped,
    )
    closing = task.finish(result, loop.run) if task.finish else None
    if loop.run:
        loop.run.end(result.ended, result.outcome, steps=loop.done, **loop.logbook.evaluation)
    if not quiet:
        _tell(result, loop.run, closing)
    return result


def _check_process(config: FitConfig, run: RunWriter | None) -> None:
    """All processes must train the same, and only one may write."""
    if run and not is_first():
        raise ConfigError("only the first process has a run folder; give run=None in the others")
    mine = settings_of(config)
    if different := changes(told(mine), mine):
        raise ConfigError(f"this process has other options than the first one: {in_words(different)}")


def _outcome(ending: Ending, loop: Loop) -> str:
    account = f"{loop.done} steps in {format_seconds(loop.seconds)}{_account(loop)}"
    if ending.ended == "stopped":
        return f"{ending.why}, after {account}"
    return f"{ending.why}; {account}" if ending.why else account


def _account(loop: Loop) -> str:
    """What became of the loss, in half a sentence."""
    losses = loop.logbook.history().get("loss", np.zeros(0))
    if not len(losses):
        return ""
    lowest = losses.min(where=np.isfinite(losses), initial=math.inf)
    counts = {"rollbacks": loop.rollbacks, "updates left out as not finite": loop.watch.skipped}
    return ", ".join(
        [
            f": loss {losses[0]:.4g} → {losses[-1]:.4g} (best {lowest:.4g})",
            *(f"{name} {value:.4g}" for name, value in loop.logbook.evaluation.items()),
            *(f"{count} {name}" for name, count in counts.items() if count),
        ]
    )


def _tell(result: FitResult, run: RunWriter | None, closing: str | None) -> None:
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
