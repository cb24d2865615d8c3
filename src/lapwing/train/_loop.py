"""What a training does between its first and its last step. `fit` says in which order."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lapwing._registry import suggestion
from lapwing.check import structure
from lapwing.journal import RunWriter, from_json, to_json

from ._config import ConfigError, FitConfig
from ._config_json import changes
from ._control import RefusedError, obey
from ._interrupt import Interrupt
from ._logbook import Logbook, Sink
from ._phases import PhaseTimer
from ._rounds import Rounds
from ._saver import Place, Saver, passes
from ._state import copy_of, initial_state, shapes_of, with_other_data
from ._step import SKIPPED, make_evaluation, make_parts
from ._task import Task
from ._watch import Trouble, Watch

_PAUSED_LOOKS_EVERY_S = 0.05


class Ending(NamedTuple):
    """How the run ended, and why."""

    ended: Literal["finished", "stopped", "failed"]
    why: str = ""


class Loop:
    """A training under way: the state after `done` steps, and everybody who has a part in it."""

    def __init__(
        self,
        task: Task,
        config: FitConfig,
        run: RunWriter | None,
        interrupt: Interrupt,
        say: Callable[[str], None],
        *,
        allow_change: bool = False,
    ):
        self.config = config
        self.run = run
        self._interrupt = interrupt
        self._say = say
        self._started = time.monotonic()
        self.state, self._mask = initial_state(task, config)
        self._task, self._rounds = task, task.rounds
        parts = make_parts(task, self._mask, config)
        self._evaluate = make_evaluation(task)
        self.timer = PhaseTimer(parts, config, run)
        self._compiled = functools.cache(functools.partial(self.timer.compile, shapes_of(self.state)))
        self._settings = {"config": _plain(config), "controls": _plain(self.state.controls._asdict())}
        self.watch = Watch()
        self.logbook = Logbook(run, self._see, _tensorboard(run, config))
        self.saver = Saver(run, config.checkpoint)
        self.done = self._done_before = 0  # After the last call, and before it.
        self._calls = self.rollbacks = self._returns = 0
        self._window = -(-config.log_every // config.steps_per_call) * config.steps_per_call
        self._seconds_before = 0.0
        self._trouble: Trouble | None = None
        self._ending: Ending | None = None
        self.paused = False
        _check_rounds(task, config)
        self._resume(allow_change)
        self._choose_loss()

    # Starting.

    def _resume(self, allow_change: bool) -> None:
        """Goes on from the newest checkpoint, if there is one; otherwise the start is the best there is."""
        found = self.saver.newest(self.state)
        if found is None:
            if self.run and self.run.latest():
                self.logbook.recall(0)
            self._best = self._place(copy_of(self.state))
            return
        now, self._best = found
        self._check_settings(now.record, allow_change)
        self._take_over(now)
        self._seconds_before = now.record["seconds"]
        self.logbook.evaluation = now.record["evaluation"]
        self.logbook.recall(self.done)
        self._tell("resumed", f"went on from the checkpoint of step {self.done}", step=self.done)

    def _check_settings(self, record: Mapping[str, Any], allow_change: bool) -> None:
        different = changes(record["config"], self._settings["config"])
        if not different:
            return
        said = ", ".join(f"{name} {old} → {new}" for name, (old, new) in different.items())
        if not allow_change:
            raise ConfigError(
                f"the config is not the one of the checkpoint: {said}; to go on with the new one, give --allow-change "
                "(in Python: allow_change=True)"
            )
        self._tell("config changed", f"the config changed: {said}", changes=different)

    def _take_over(self, place: Place) -> None:
        """Goes on from a place; what the config says anew about the controls counts."""
        record = place.record
        mine, new = copy_of(place.state), self.state.controls
        old_settings, new_settings = record["controls"], self._settings["controls"]
        controls = mine.controls._replace(
            **{name: getattr(new, name) for name in new._fields if old_settings[name] != new_settings[name]}
        )
        self.state = mine._replace(controls=controls)
        self._set_back(place.step)
        self.watch = Watch.from_json(record["watch"])
        self.rollbacks, self._returns = record["rollbacks"], record["returns"]

    def _set_back(self, step: int) -> None:
        """As if the last call had just ended at this step, so that what is due after it is done again."""
        self.done, self._done_before = step, max(0, step - self.config.steps_per_call)

    # Steps.

    def advance(self) -> None:
        """The next call of the device."""
        count = min(self.config.steps_per_call, self.config.steps - self.done)
        take_steps = self._compiled(count)
        if self.timer.is_due(self._calls, count):
            self.timer.time(self.state, take_steps)
        self.state, metrics = take_steps(self.state)
        self._calls += 1
        self._done_before, self.done = self.done, self.done + count
        self.logbook.add(self._done_before, count, metrics)

    def _see(self, first: int, columns: Mapping[str, np.ndarray]) -> int:
        if self._trouble:
            return 0
        losses, norms = (np.asarray(columns[name], np.float64) for name in ("loss", "gradient_norm"))
        self._trouble = self.watch.see(self.config, first, losses, norms, columns[SKIPPED] != 0)
        return len(losses) if self._trouble is None else self._trouble.step + 1 - first

    def look(self) -> None:
        """Decides what the numbers say: what is best, whether to go back, whether to stop."""
        window_ends = self.done % self._window == 0 or self.done == self.config.steps
        round_ends = self._rounds is not None and self.done % self._rounds.every == 0
        if window_ends or round_ends:
            self.logbook.fetch()
        if self._trouble:
            self._get_out_of(self._trouble)
            return
        if window_ends:
            if self.watch.end_window(self.config, self.done):
                self._best = self._place(copy_of(self.state))
            if self.watch.should_cut(self.config, self.done):
                self._cut_rate()
            self._stop_early()
        if self._rounds is not None and round_ends:
            self._take_turn(self._rounds)

    def _take_turn(self, rounds: Rounds) -> None:
        """A round is over. A loss before it says nothing about what comes after, so the best is asked for anew."""
        turn = rounds.turn(*jax.device_get((self.state.params, self.state.optimizer)))
        structure(params=self.state.params, params_after_the_round=turn.params)
        structure(optimizer_state=self.state.optimizer, optimizer_state_after_the_round=turn.optimizer)
        params, optimizer = jax.tree.map(jnp.asarray, (turn.params, turn.optimizer))
        self.state = copy_of(self.state._replace(params=params, optimizer=optimizer))
        self.watch = Watch(skipped=self.watch.skipped)
        self._best = self._place(copy_of(self.state))
        self.saver.asked = True
        self._tell("round", turn.said, step=self.done, **turn.fields)
        if turn.over:
            self._ending = self._ending or Ending("finished", turn.said)
        self._choose_loss()

    def _choose_loss(self) -> None:
        """Compiles again if the rounds want another loss for what is trained now."""
        if self._rounds is None or self._rounds.loss is None:
            return
        loss = self._rounds.loss(jax.device_get(self.state.params))
        if loss is not self._task.loss:
            self._task = dataclasses.replace(self._task, loss=loss)
            self.timer.exchange(make_parts(self._task, self._mask, self.config))
            self._compiled.cache_clear()

    def _get_out_of(self, trouble: Trouble) -> None:
        rules, what = self.config.rollback, f"{trouble.reason} at step {trouble.step}"
        if self.rollbacks >= rules.times:
            after = f" after {self.rollbacks} rollbacks" if self.rollbacks else ""
            self._ending = Ending("failed", f"{what}{after}; a smaller rate, or a clip, may help")
            return
        self.rollbacks += 1
        self._go_back(self._best, self.watch.back_at_best(), what, cut=rules.cut)

    def _go_back(self, place: Place, watch: Watch, why: str, cut: float = 1.0) -> None:
        self._returns += 1
        self._trouble = None
        before = self.done
        controls = self.state.controls
        state = copy_of(place.state)._replace(controls=controls._replace(rate=controls.rate * cut))
        self.state = with_other_data(state, self._returns)
        self._choose_loss()
        self._set_back(place.step)
        self.watch = watch
        self.logbook.go_back(self.done)
        self.saver.asked = True
        rate = float(self.state.controls.rate)
        said = f"rolled back from step {before} to step {self.done}: {why}; rate now {rate:g}"
        self._tell("rollback", said, step=before, to=self.done, reason=why, rate=rate)

    def go_back_to(self, where: int | Literal["best"]) -> None:
        """Goes back to the best parameters, or to those of a checkpoint, because somebody wants it."""
        self.logbook.fetch()
        if where == "best":
            self._go_back(self._best, self.watch.back_at_best(), "asked for")
        else:
            place = self.saver.at_step(self.state, where)
            self._go_back(place, Watch.from_json(place.record["watch"]), "asked for")

    def _cut_rate(self) -> None:
        plan, controls = self.config.schedule, self.state.controls
        rate = max(float(controls.rate) * plan.cut, self.config.rate * plan.floor)
        self.state = self.state._replace(controls=controls._replace(rate=jnp.float32(rate)))
        said = f"no better loss for {plan.patience} steps: rate {float(controls.rate):g} → {rate:g}"
        self._tell("rate", said, step=self.done, rate=rate)

    # Between steps.

    def listen(self) -> None:
        """Does what people ask for. While it is paused, nothing else is done."""
        if self.run is None:
            return
        while True:
            for command in self.run.poll():
                try:
                    outcome = obey(self, command)
                except RefusedError as refusal:
                    self.run.refused(command, str(refusal))
                    self._say(f"{command}: refused: {refusal}")
                else:
                    self.run.applied(command, outcome, step=self.done)
                    self._say(f"{command}: {outcome}")
            if not self.paused or self._interrupt.reason or self._ending:
                return
            self.save_if_due()
            time.sleep(_PAUSED_LOOKS_EVERY_S)

    def pause(self) -> None:
        assert self.run is not None
        self.paused = self.saver.asked = True
        self.run.event("paused", step=self.done)

    def go_on(self) -> None:
        assert self.run is not None
        self.paused = False
        self.run.event("went on", step=self.done)

    def stop(self, by: str) -> None:
        self._ending = Ending("stopped", f"by {by}")

    def save_if_due(self) -> None:
        """Writes a checkpoint if it is time for one."""
        if self.saver.is_due(self.done, self._done_before):
            self.save()

    def save(self) -> None:
        """What is written of the steps so far is written first: a checkpoint never knows more than the metrics."""
        self.logbook.fetch()
        if self._trouble:
            return  # Nobody wants to go on from here.
        self.logbook.write()
        self.saver.save(self._place(self.state), self._best)

    def evaluate_if_due(self) -> None:
        """This comes after the checkpoint of a step, so that a resumed run evaluates there too."""
        if self._evaluate and passes(self.config.evaluate_every, self.done, self._done_before):
            self.evaluate()
            self.watch.see_evaluation(self.config, self.done, self.logbook.evaluation)
            self._stop_early()

    def evaluate(self) -> None:
        if self._evaluate and self.logbook.evaluated_at != self.done:
            self.logbook.add_evaluation(self.done, self._evaluate(self.state))

    # Ending.

    def is_over(self) -> bool:
        """Whether no further step is to be made."""
        if self._ending is None and self._interrupt.reason:
            self._ending = Ending("stopped", f"by {self._interrupt.reason}")
        if self._ending is None and self.done >= self.config.steps:
            self._ending = Ending("finished")
        if self._ending is None and self.seconds > 60 * self.config.stop.minutes:
            self._ending = Ending("finished", f"its time of {self.config.stop.minutes:g} minutes is over")
        return self._ending is not None

    def _stop_early(self) -> None:
        stop = self.config.stop
        if self.watch.waited_in_vain(self.config, self.done):
            why = f"no better loss for {self.done - self.watch.best_step} steps"
            self._ending = self._ending or Ending("finished", why)
        if self.watch.rose_in_vain(self.config, self.done):
            why = f"no better {stop.rising} than the {self.watch.risen:.4g} of step {self.watch.risen_step}"
            self._ending = self._ending or Ending("finished", why)
        known = {**self.logbook.latest, **self.logbook.evaluation, "loss": self.watch.smoothed}
        if stop.metric not in known and not (self._evaluate and stop.metric.startswith("eval_")):
            raise ConfigError(
                f"stop.metric should be a metric, but is {stop.metric!r}; {suggestion(stop.metric, known)}"
            )
        value = known.get(stop.metric, math.nan)
        if value < stop.below or value > stop.above:
            self._ending = self._ending or Ending("finished", f"{stop.metric} is {value:.6g}")

    def close(self) -> Ending:
        """Everything that has to be on disk at the end. A run that failed keeps its best parameters."""
        assert self._ending is not None
        self.logbook.fetch()
        if self._ending.ended == "finished":
            self.evaluate()
        self.logbook.write()
        self.logbook.close()
        lost = self._trouble or self._ending.ended == "failed"
        now = self._best if lost else self._place(self.state)
        self.saver.save(now, self._best)
        self.saver.finish()
        self.timer.save()
        return self._ending

    @property
    def seconds(self) -> float:
        """Since the run was started, without the time between two resumptions."""
        return self._seconds_before + time.monotonic() - self._started

    def _tell(self, event: str, said: str, **fields: Any) -> None:
        self._say(said)
        if self.run:
            self.run.event(event, said, **fields)

    def _place(self, state: Any) -> Place:
        record = {
            **self._settings,
            "watch": self.watch.to_json(),
            "rollbacks": self.rollbacks,
            "returns": self._returns,
            "seconds": self.seconds,
            "evaluation": self.logbook.evaluation,
        }
        return Place(self.done, state, record)


def _check_rounds(task: Task, config: FitConfig) -> None:
    if task.rounds is not None and task.rounds.every % config.steps_per_call:
        raise ConfigError(
            f"steps_per_call should divide the {task.rounds.every} steps of a round, but is {config.steps_per_call}"
        )


def _plain(value: Any) -> Any:
    return from_json(to_json(jax.device_get(value)))


def _tensorboard(run: RunWriter | None, config: FitConfig) -> Sink | None:
    if run is None or not config.tensorboard:
        return None
    from ._tensorboard import TensorBoard

    return TensorBoard(run.folder / "tensorboard")
