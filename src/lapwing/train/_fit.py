"""Training from the first parameters to the last line of the journal: one run, or many that share a device."""

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import jax

from lapwing.core import interrupts
from lapwing.journal import RunWriter
from lapwing.task import Callback, Task, TaskError

from ._config import ConfigError, FitConfig
from ._config_json import changes, in_words, settings_of
from ._devices import mesh_of, on_every_device, put_on, split_over
from ._feed import Put, check_data, make_feed
from ._loop import TrainingLoop
from ._processes import are_several, broadcast_from_first, explain_lost_peer, is_first
from ._program import Program
from ._progress import progress
from ._result import FitResult, conclude, print_result
from ._rule import Rule
from ._state import State, initial_state
from ._table import Table, shared_task
from ._transfer import Calls

_PAUSED_POLLS_EVERY_S = 0.05
_UNATTENDED_S = 0.003

Config = TypeVar("Config", bound=FitConfig)


def fit(
    task: Task,
    config: FitConfig,
    run: RunWriter | None = None,
    *,
    rules: Sequence[Rule] = (),
    callbacks: Sequence[Callback] = (),
    devices: int | None = None,
    quiet: bool = False,
    allow_change: bool = False,
) -> FitResult:
    """Trains a task.

    If a run folder is given, the metrics of every step and checkpoints are written to it, commands are read from its
    inbox, and a run that was opened with `Run.reopen` resumes from its newest checkpoint. The run is ended here: as
    finished, as stopped (by Ctrl-C or a command, after the current step), as preempted (by SIGTERM), or as failed (the
    loss does not stay finite, or an exception).

    **Arguments:**

    - `rules`: further rules that decide about the run, such as early stopping (`Rule`).
    - `callbacks`: look at the run after those of the task, to draw or to report (`Callback`).
    - `devices`: split each batch over this many devices; the numbers are the same up to rounding, and a run may be
      resumed on another number of them.
    - `quiet`: print nothing.
    - `allow_change`: resume although the config is not the one of the checkpoint.

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
    start = functools.partial(Alone, task, config, devices)
    (result,) = _train(task, [config], [run], start, rules, callbacks, quiet or not is_first(), allow_change)
    return result


def fit_many(
    build: Callable[[Config], Task],
    configs: Sequence[Config],
    runs: Sequence[RunWriter | None],
    *,
    rules: Sequence[Rule] = (),
    callbacks: Sequence[Callback] = (),
    quiet: bool = True,
    allow_change: bool = False,
) -> list[FitResult]:
    """Trains a task for several configs in one compiled, batched step on one device, each into its own run folder.

    Every run gets what `fit` would have given it, up to rounding: metrics, checkpoints, commands, its own end. Runs
    that were reopened resume from their checkpoints, which may be at different steps. Step times are those of all runs
    together.

    **Arguments:**

    - `build(config)` returns the task.
    - `configs` may differ in what `VECTORIZED` names. Other differences are refused, and so is a task that has one of
      these built in as a constant.
    - `runs`: a run, or None, for each config.
    - The others are those of `fit`.

    >>> import jax.numpy as jnp
    >>> task = Task(
    ...     init=lambda key: jax.random.normal(key, (3,)),
    ...     data=lambda key, step: jax.random.normal(key, (8, 3)),
    ...     loss=lambda params, x: (jnp.mean((x @ (params - 1)) ** 2), {}),
    ... )
    >>> configs = [FitConfig(steps=200, learning_rate=0.1, seed=seed, laps_every=0) for seed in range(3)]
    >>> [bool(result.metrics["loss"][-1] < 0.01) for result in fit_many(lambda _: task, configs, [None] * 3)]
    [True, True, True]
    """
    task = shared_task(build, configs, runs)
    return _train(
        task, configs, runs, functools.partial(Table, task, configs), rules, callbacks, quiet, allow_change
    )


class _Steps(Protocol):
    """What makes the steps of the runs."""

    program: Program
    calls: Calls
    states: Sequence[State]
    put: Put | None
    """How arrays of the data come to the devices; None: to the default one."""

    def advance(self, running: Sequence[TrainingLoop], loops: Sequence[TrainingLoop]) -> None:
        """Makes the next call of each running run, or the next few; `loops` are all runs."""


def _train(
    task: Task,
    configs: Sequence[FitConfig],
    runs: Sequence[RunWriter | None],
    start: Callable[[], _Steps],
    rules: Sequence[Rule],
    callbacks: Sequence[Callback],
    quiet: bool,
    allow_change: bool,
) -> list[FitResult]:
    """The story of a training, with all runs in each of its lines."""
    ended: dict[TrainingLoop, tuple[FitResult, str | None]] = {}
    with contextlib.ExitStack() as stack:
        for run in filter(None, runs):
            stack.enter_context(run)
        stack.enter_context(explain_lost_peer())
        interrupt = stack.enter_context(interrupts())
        shown = stack.enter_context(progress(max(config.steps for config in configs), quiet))
        check_data(task)
        steps = start()
        loops: list[TrainingLoop] = []
        for state, config, run in zip(steps.states, configs, runs, strict=True):
            say = functools.partial(_say, shown.say, run) if len(runs) > 1 else shown.say
            feed = make_feed(task, config, say, steps.put)
            stack.callback(feed.close)
            loops.append(
                TrainingLoop(
                    steps.program,
                    state,
                    feed,
                    steps.calls.fetch,
                    config,
                    run,
                    interrupt,
                    say,
                    rules=rules,
                    callbacks=[*task.callbacks, *callbacks],
                    allow_change=allow_change,
                )
            )
            stack.callback(loops[-1].saver.close)
            stack.callback(loops[-1].logbook.stop)
        active = loops
        while active:
            running = [loop for loop in active if not loop.is_waiting]
            for loop in running:
                loop.evaluate_if_due()
            over = [loop for loop in running if loop.is_over()]
            for loop in over:
                loop.start_closing()
            for loop in over:  # Runs that end together write their last checkpoints at the same time.
                ended[loop] = conclude(loop)
            active = [loop for loop in active if loop not in ended]
            running = [loop for loop in active if not loop.is_waiting]
            steps.advance(running, loops)
            for loop in running:
                loop.end_window()
            for loop in active:
                loop.poll_commands()
                loop.save_if_due()
            slowest = min(active or loops, key=lambda loop: loop.position.done)
            shown.show(
                slowest.position.done, slowest.logbook.latest, slowest.rules.best_in_words, last=not active
            )
            if active and not running:
                time.sleep(_PAUSED_POLLS_EVERY_S)
    if not quiet:
        for loop in loops:
            print_result(ended[loop][0], loop.run, ended[loop][1])
    return [ended[loop][0] for loop in loops]


class Alone:
    """The steps of one run, on one device or on several."""

    def __init__(self, task: Task, config: FitConfig, devices: int | None):
        if devices is None and are_several():
            devices = jax.device_count()
        if devices is not None and task.rounds is not None:
            raise TaskError("a task with rounds is trained on one device; leave out devices")
        mesh = None if devices is None else mesh_of(devices)
        state, mask = initial_state(task, config)
        if mesh is None:
            self.program = Program(task, mask, config, state)
        else:
            state = on_every_device(state, mesh)
            self.program = Program(task, mask, config, state, split_over(mesh, task.batch_axis))
        self.put: Put | None = None if mesh is None else put_on(mesh, task.batch_axis)
        self.calls = Calls(self.program)
        self.states: Sequence[State] = [state]

    def advance(self, running: Sequence[TrainingLoop], loops: Sequence[TrainingLoop]) -> None:
        for loop in running:
            position, feed, first = loop.position, loop.feed, loop.position.done
            undisturbed, looks_again = loop.undisturbed_until(), time.monotonic() + _UNATTENDED_S
            if position.has_state:
                self.calls.drop_ahead()
            for count in self.calls.accept_ahead():
                position.advance(count)
            count = loop.next_count if position.done < undisturbed else 0
            while count:
                fed = feed.take(position.done, count)
                if position.has_state:
                    self.calls.load(position.state, count, fed)
                    position.lend_state(lambda: self.calls.state, self.calls.snapshot)
                loop.watching.keep_fed(position.done, count, fed)
                loop.watching.probe_if_due(lambda: self.calls.state, fed)
                self.calls.make(count, fed, feed.waited)
                position.advance(count)
                # As long as nothing can be due, nobody has to look after each short call.
                if position.done >= undisturbed or self.calls.is_full or time.monotonic() > looks_again:
                    break
                count = loop.next_count
            self.calls.expect([(loop.expect(range(first, position.done)), None)])
            if loop.may_go_ahead():
                self._go_ahead(loop)

    def _go_ahead(self, loop: TrainingLoop) -> None:
        """Makes the next calls while the host thinks about the last ones."""
        at, until = loop.position.done, loop.undisturbed_until()
        for _ in range(self.calls.start_ahead()):
            count = min(loop.position.count_at(at), until - at)
            if not count:
                break
            self.calls.make_ahead(count, loop.feed.take(at, count))
            at += count


def _check_process(config: FitConfig, run: RunWriter | None) -> None:
    """All processes must train the same, and only one may write."""
    if run and not is_first():
        raise ConfigError("only the first process has a run folder; give run=None in the others")
    mine = settings_of(config)
    if different := changes(broadcast_from_first(mine), mine):
        raise ConfigError(f"this process has other options than the first one: {in_words(different)}")


def _say(say: Callable[[str], None], run: RunWriter | None, text: str) -> None:
    say(f"{run.name}: {text}" if run else text)
