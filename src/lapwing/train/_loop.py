"""What a training does between its first and its last step. `fit` says in which order."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.journal import Command, RunWriter
from lapwing.task import Rounds
from lapwing.trees import structure

from ._config import ConfigError, FitConfig
from ._config_json import allowed_changes, in_words, settings_of
from ._control import answer
from ._devices import on_one_device
from ._ending import Ending, early_end
from ._engine import Engine
from ._interrupt import Interrupt
from ._logbook import Logbook, sink_of
from ._optimizer import task_state, with_task_state
from ._phases import PhaseTimer
from ._processes import are_several, told
from ._saver import Place, Saver, passes
from ._state import State, copy_of, with_other_data
from ._step import SKIPPED, Packed
from ._watch import Trouble, Watch

PAUSED_LOOKS_EVERY_S = 0.05
_LAPS_EVERY_S = 5.0


class Loop:
    """A training under way: the state after `done` steps, and everybody who has a part in it."""

    def __init__(
        self,
        engine: Engine,
        state: State,
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
        self.say = say
        self._started = time.monotonic()
        self._laps_saved = self._started
        self._engine = engine
        self.state = state
        self._rounds = engine.task.rounds
        controls = jax.device_get(state.controls)
        self._settings = {"config": settings_of(config), "controls": settings_of(controls._asdict())}
        self.watch = Watch()
        self.logbook = Logbook(run, self._see, sink_of(run, config), by_time=not are_several())
        self.saver = Saver(run, config.checkpoint)
        self.done = self._done_before = 0  # After the last call, and before it.
        self.rollbacks = self._returns = 0
        self._window = -(-config.log_every // config.steps_per_call) * config.steps_per_call
        self._seconds_before = 0.0
        self._trouble: Trouble | None = None
        self._ending: Ending | None = None
        self.paused = False
        if self._rounds and self._rounds.every % config.steps_per_call:
            raise ConfigError(
                f"steps_per_call should divide the {self._rounds.every} steps of a round, "
                f"but is {config.steps_per_call}"
            )
        self._resume(allow_change)
        self._choose_loss()

    @property
    def state(self) -> State:
        """After the last call."""
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state = state

    @property
    def timer(self) -> PhaseTimer:
        return self._engine.timer

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
        if different := allowed_changes(now.record["config"], self._settings["config"], allow=allow_change):
            self._tell("config changed", f"the config changed: {in_words(different)}", changes=different)
        self._take_over(now)
        self._seconds_before = now.record["seconds"]
        self.logbook.evaluation = now.record["evaluation"]
        self.logbook.recall(self.done)
        self.logbook.latest = told(self.logbook.latest)
        self._tell("resumed", f"went on from the checkpoint of step {self.done}", step=self.done)

    def _take_over(self, place: Place) -> None:
        """Goes on from a place; what the config says anew about the controls counts."""
        record = place.record
        mine, new = copy_of(place.state), self.state.controls
        old_settings, new_settings = record["controls"], self._settings["controls"]
        controls = mine.controls._replace(
            **{name: getattr(new, name) for name in new._fields if old_settings[name] != new_settings[name]}
        )
        self.state = mine.with_controls(controls)
        self._set_back(place.step)
        self.watch = Watch.from_json(record["watch"])
        self.rollbacks, self._returns = record["rollbacks"], record["returns"]

    def _set_back(self, step: int) -> None:
        """As if the last call had just ended at this step, so that what is due after it is done again."""
        self.done, self._done_before = step, max(0, step - self.config.steps_per_call)

    # Steps.

    def advance(self) -> None:
        """The next call of the device."""
        count = self.next_count
        self.state, metrics = self._engine.advance(self.state, count)
        self.take_in(count, metrics)

    @property
    def next_count(self) -> int:
        """How many steps the next call makes."""
        return min(self.config.steps_per_call, self.config.steps - self.done)

    def take_in(self, count: int, metrics: Packed) -> None:
        """A call has made so many steps, or is about to."""
        self._done_before, self.done = self.done, self.done + count
        self.logbook.add(self._done_before, count, metrics)

    @property
    def _window_ends(self) -> bool:
        return self.done % self._window == 0 or self.done == self.config.steps

    def _see(self, first: int, columns: Mapping[str, np.ndarray]) -> int:
        if self._trouble:
            return 0
        losses, norms = (np.asarray(columns[name], np.float64) for name in ("loss", "gradient_norm"))
        self._trouble = self.watch.see(self.config, first, losses, norms, columns[SKIPPED] != 0)
        return len(losses) if self._trouble is None else self._trouble.step + 1 - first

    def look(self) -> None:
        """Decides what the numbers say: what is best, whether to go back, whether to stop."""
        window_ends = self._window_ends
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
            if time.monotonic() - self._laps_saved > _LAPS_EVERY_S:
                self._save_laps()
        if self._rounds is not None and round_ends:
            self._take_turn(self._rounds)

    def _take_turn(self, rounds: Rounds) -> None:
        """A round is over. A loss before it says nothing about what comes after, so the best is asked for anew."""
        before = self.state.params, task_state(self.state.optimizer)
        turn = rounds.turn(*jax.device_get(before))
        structure(params=before[0], params_after_the_round=turn.params)
        structure(optimizer_state=before[1], optimizer_state_after_the_round=turn.optimizer)
        params, inner = jax.tree.map(jnp.asarray, (turn.params, turn.optimizer))
        optimizer = with_task_state(self.state.optimizer, inner)
        self.state = copy_of(self.state._replace(params=params, optimizer=optimizer))
        self.watch = Watch(skipped=self.watch.skipped)
        self._best = self._place(copy_of(self.state))
        self.saver.asked = True
        self._tell("round", turn.message, step=self.done, **turn.fields)
        if turn.over:
            self._ending = self._ending or Ending("finished", turn.message)
        self._choose_loss()

    def _choose_loss(self) -> None:
        """Compiles again if the rounds want another loss for what is trained now."""
        if self._rounds is None or self._rounds.loss is None:
            return
        self._engine.use(self._rounds.loss(jax.device_get(self.state.params)))

    def _get_out_of(self, trouble: Trouble) -> None:
        rules, what = self.config.rollback, f"{trouble.reason} at step {trouble.step}"
        if self.rollbacks >= rules.times:
            after = f" after {self.rollbacks} rollbacks" if self.rollbacks else ""
            self._ending = Ending("failed", f"{what}{after}; a smaller learning rate, or a clip, may help")
            return
        self.rollbacks += 1
        self._go_back(self._best, self.watch.back_at_best(), what, cut=rules.cut)

    def _go_back(self, place: Place, watch: Watch, why: str, cut: float = 1.0) -> None:
        self._returns += 1
        self._trouble = None
        before = self.done
        controls = self.state.controls
        state = copy_of(place.state).with_controls(
            controls._replace(learning_rate=controls.learning_rate * cut)
        )
        self.state = with_other_data(state, self._returns)
        self._choose_loss()
        self._set_back(place.step)
        self.watch = watch
        self.logbook.go_back(self.done)
        self.saver.asked = True
        rate = float(self.state.controls.learning_rate)
        said = f"rolled back from step {before} to step {self.done}: {why}; learning rate now {rate:g}"
        self._tell("rollback", said, step=before, to=self.done, reason=why, learning_rate=rate)

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
        rate = max(float(controls.learning_rate) * plan.cut, self.config.learning_rate * plan.floor)
        self.state = self.state.with_controls(
            controls._replace(learning_rate=jnp.full_like(controls.learning_rate, rate))
        )
        said = f"no better loss for {plan.patience} steps: learning_rate {float(controls.learning_rate):g} → {rate:g}"
        self._tell("learning_rate", said, step=self.done, learning_rate=rate)

    # Between steps.

    def listen(self) -> None:
        """Does what people ask for. While it is paused, nothing else is done."""
        self.hear()
        while self.waits:
            self.save_if_due()
            time.sleep(PAUSED_LOOKS_EVERY_S)
            self.hear()

    @property
    def waits(self) -> bool:
        """Whether it is paused, and nothing says that it should end."""
        return self.paused and self._ending is None

    def hear(self) -> None:
        """Does what was asked for since the last time."""
        if not self._processes_meet:
            return
        posted = [dataclasses.asdict(command) for command in self.run.poll()] if self.run else []
        commands, is_late = told((posted, self.saver.is_late()))
        self.saver.asked |= is_late
        for command in commands:
            self.say(answer(self, Command(**command)))
        if self.paused:
            self._heed()

    @property
    def _processes_meet(self) -> bool:
        """Several processes talk where a window ends, since they have to wait for each other."""
        return not are_several() or self._window_ends

    def pause(self) -> None:
        self.paused = self.saver.asked = True
        if self.run:
            self.run.event("paused", step=self.done)

    def go_on(self) -> None:
        self.paused = False
        if self.run:
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
        if self._engine.evaluate and passes(self.config.evaluate_every, self.done, self._done_before):
            self.evaluate()
            self.watch.see_evaluation(self.config, self.done, self.logbook.evaluation)
            self._stop_early()

    def evaluate(self) -> None:
        if self._engine.evaluate and self.logbook.evaluated_at != self.done:
            self.logbook.add_evaluation(self.done, self._engine.evaluate(on_one_device(self.state)))

    # Ending.

    def is_over(self) -> bool:
        """Whether no further step is to be made."""
        if self._processes_meet:
            self._heed()
        if self._ending is None and self.done >= self.config.steps:
            self._ending = Ending("finished")
        return self._ending is not None

    def _heed(self) -> None:
        """Ctrl-C and the time end the run."""
        interrupt, seconds = told((self._interrupt.reason, self.seconds))
        minutes = self.config.stop.minutes
        if interrupt:
            self._ending = self._ending or Ending("stopped", f"by {interrupt}")
        if seconds > 60 * minutes and self.done < self.config.steps and not self.paused:
            self._ending = self._ending or Ending("finished", f"its time of {minutes:g} minutes is over")

    def _stop_early(self) -> None:
        known = {**self.logbook.latest, **self.logbook.evaluation, "loss": self.watch.smoothed}
        early = early_end(self.config, self.watch, self.done, known, evaluates=bool(self._engine.evaluate))
        self._ending = self._ending or early

    def close(self) -> Ending:
        """Everything that has to be on disk at the end is there after this."""
        self.begin_to_close()
        return self.finish_closing()

    def begin_to_close(self) -> None:
        """Begins to write the last state. A run that failed keeps its best parameters."""
        assert self._ending is not None
        self.logbook.fetch()
        if self._ending.ended == "finished":
            self.evaluate()
        self.logbook.write()
        self.logbook.close()
        lost = self._trouble or self._ending.ended == "failed"
        now = self._best if lost else self._place(self.state)
        self.saver.save(now, self._best)

    def finish_closing(self) -> Ending:
        """Waits until it is written."""
        assert self._ending is not None
        self.saver.finish()
        self._save_laps()
        return self._ending

    def _save_laps(self) -> None:
        self._laps_saved = time.monotonic()
        if self.run and self.timer.every:
            self.run.save_laps(self.timer.times().to_json())

    @property
    def seconds(self) -> float:
        """Since the run was started, without the time between two resumptions."""
        return self._seconds_before + time.monotonic() - self._started

    def _tell(self, event: str, said: str, **fields: Any) -> None:
        self.say(said)
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
