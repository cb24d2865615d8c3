"""One run under way: its state after `done` steps, and what happens between two calls of the device.

`_fit.py` says in which order. The loop carries data from one part to the next: metrics from the device (`Transfer`) to
the rules and the logbook, decisions of the rules and commands of people to the state, the state to checkpoints.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp

from lapwing.journal import Command, RunWriter
from lapwing.trees import structure

from ._config import FitConfig
from ._config_json import allowed_changes, in_words, settings_of
from ._control import announce, answer
from ._devices import on_one_device
from ._interrupt import Interrupt
from ._logbook import Logbook
from ._optimizer import task_state, with_task_state
from ._processes import are_several, broadcast_from_first
from ._program import Program
from ._rule import ChangeState, Decision, EndRun, MarkBest, RollBackToBest, Rule, SetLearningRate
from ._rules import Rules, default_rules
from ._saver import Place, Saver, passes
from ._state import Controls, State, copy_of, with_other_data
from ._step import Packed
from ._transfer import Transfer

_LAPS_EVERY_S = 5.0
_ROWS_AT_ONCE = 256  # Written in less than a millisecond, while the device computes its next call.


class Loop:
    """A run under way."""

    def __init__(
        self,
        program: Program,
        state: State,
        config: FitConfig,
        run: RunWriter | None,
        interrupt: Interrupt,
        say: Callable[[str], None],
        *,
        rules: Sequence[Rule] = (),
        allow_change: bool = False,
    ):
        self.config, self.run, self.say = config, run, say
        self.program = program
        self.rules = Rules(default_rules(program.task, config, rules), config)
        self.logbook = Logbook(run, config)
        self.saver = Saver(run, config.checkpoint)
        self._transfer = Transfer()
        self._interrupt = interrupt
        self._started = self._laps_saved = time.monotonic()
        self._seconds_before = 0.0
        self.state = state
        self.done = self._done_before = 0  # Steps after the last call, and before it.
        self.rollbacks = self._returns = 0
        self.paused = False
        self._rollback: RollBackToBest | None = None  # Decided, but not carried out yet.
        self._ending: EndRun | None = None
        controls = jax.device_get(state.controls)
        self._settings = {"config": settings_of(config), "controls": settings_of(controls._asdict())}
        self._best = self._resume(allow_change)
        announce(self)
        self._choose_loss()

    # State.

    @property
    def state(self) -> State:
        """After the last call."""
        return self._row() if self._state is None else self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state: State | None = state
        self._learning_rate: float | None = None

    def lend_state(self, row: Callable[[], State]) -> None:
        """The state is a row of a table until it is set again."""
        self._state, self._row = None, row

    @property
    def has_state(self) -> bool:
        return self._state is not None

    @property
    def learning_rate(self) -> float:
        """Before the factor of the schedule. Only the host changes it, so it is read once after each change."""
        if self._learning_rate is None:
            self._learning_rate = float(self.state.controls.learning_rate)
        return self._learning_rate

    # Start.

    def _resume(self, allow_change: bool) -> Place:
        """Continues from the newest checkpoint, if there is one. Returns the best parameters so far."""
        found = self.saver.newest(self.state)
        if found is None:
            if self.run and self.run.latest():
                self.logbook.restore(0)
            return self._place(copy_of(self.state))
        now, best = found
        record = now.record
        if different := allowed_changes(record["config"], self._settings["config"], allow=allow_change):
            self._tell("config changed", f"the config changed: {in_words(different)}", changes=different)
        state = copy_of(now.state)
        self.state = state.with_controls(self._changed_controls(record["controls"], state.controls))
        self._set_done(now.step)
        self.rules.restore(record, now.step)
        self.rollbacks, self._returns = record["rollbacks"], record["returns"]
        self._seconds_before = record["seconds"]
        self.logbook.evaluation = record["evaluation"]
        self.logbook.restore(self.done)
        self.logbook.latest = broadcast_from_first(self.logbook.latest)
        self._tell("resumed", f"resumed from the checkpoint of step {self.done}", step=self.done)
        return best

    def _changed_controls(self, before: Any, controls: Controls) -> Controls:
        """Those of the checkpoint, except what the config sets to another value than when it was written."""
        now, new = self._settings["controls"], self.state.controls
        return controls._replace(
            **{name: getattr(new, name) for name in new._fields if before[name] != now[name]}
        )

    def _set_done(self, step: int) -> None:
        """As if a call had just ended at this step, so that what is due after it is done again."""
        self.done, self._done_before = step, max(0, step - self.config.steps_per_call)

    # Steps.

    @property
    def next_count(self) -> int:
        """How many steps the next call makes."""
        return min(self.config.steps_per_call, self.config.steps - self.done)

    def add_call(self, metrics: Packed, state: State | None = None) -> None:
        """A call of `next_count` steps has been given to the device; `state` is its result, if it is not in a table."""
        self._state = state
        self._done_before, self.done = self.done, self.done + self.next_count
        self._transfer.add(range(self._done_before, self.done), metrics)
        self.logbook.write(_ROWS_AT_ONCE)
        self._transfer.wait()
        # Several processes must see the same metrics at the same step, so there the clock has no say.
        if not are_several() and self._transfer.is_late():
            self.on_metrics(leave=1)

    def on_metrics(self, *, leave: int = 0) -> None:
        """Shows the metrics of all calls but the last `leave` to the rules, and keeps them."""
        rows = self._transfer.fetch(leave=leave)
        if rows is None or self._rollback:
            return
        self._rollback = self.rules.on_steps(rows.steps.start, rows.columns)
        self.logbook.add(rows.split(self._rollback.step + 1)[0] if self._rollback else rows)

    def end_window(self) -> None:
        """Lets the rules decide, where a window of steps ends; carries out a rollback anywhere."""
        ends = self.rules.window_ends(self.done)
        if ends:
            self.on_metrics()
        if self._rollback:
            self._carry_out([self._rollback])
        elif ends:
            self._carry_out(self.rules.on_window(self.done, *self._known()))
            if time.monotonic() - self._laps_saved > _LAPS_EVERY_S:
                self._save_laps()

    def evaluate_if_due(self) -> None:
        """This comes after the checkpoint of a step, so that a resumed run evaluates there too."""
        if passes(self.config.evaluate_every, self.done, self._done_before) and self.evaluate():
            self._carry_out(self.rules.on_evaluation(self.done, *self._known()))

    def evaluate(self) -> bool:
        """Whether the parameters were evaluated now, or just before. Not where a rollback is due."""
        if self.program.evaluate is None:
            return False
        self.on_metrics()
        if self._rollback:
            return False
        if self.logbook.evaluated_at != self.done:
            values = self.program.evaluate(on_one_device(self.state))
            # Two hosts may round differently, but must not decide differently.
            evaluation = broadcast_from_first(
                {f"eval_{name}": float(value) for name, value in values.items()}
            )
            self.logbook.add_evaluation(self.done, evaluation)
        return True

    def _known(self) -> tuple[dict[str, float], float]:
        return {**self.logbook.latest, **self.logbook.evaluation}, self.learning_rate

    # Decisions.

    def _carry_out(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            match decision:
                case MarkBest():
                    self._best = self._place(copy_of(self.state))
                case SetLearningRate(learning_rate, reason):
                    self._set_learning_rate(learning_rate, reason)
                case EndRun():
                    self._ending = self._ending or decision
                case ChangeState(turn):
                    self._change_state(turn)
                case RollBackToBest(step, reason, cut):
                    self._roll_back_or_fail(f"{reason} at step {step}", cut)
                    return  # The other decisions were about steps that are undone.

    def _set_learning_rate(self, learning_rate: float, reason: str) -> None:
        said = f"{reason}: learning_rate {self.learning_rate:g} → {learning_rate:g}"
        controls = self.state.controls
        new = jnp.full_like(controls.learning_rate, learning_rate)  # On the devices of the old one.
        self.state = self.state.with_controls(controls._replace(learning_rate=new))
        self._tell("learning_rate", said, step=self.done, learning_rate=learning_rate)

    def _roll_back_or_fail(self, why: str, cut: float) -> None:
        if self.rollbacks < self.config.rollback.times:
            self.rollbacks += 1
            self._roll_back(self._best, why, cut)
        else:
            after = f" after {self.rollbacks} rollbacks" if self.rollbacks else ""
            why = f"{why}{after}; a smaller learning rate, or a clip, may help"
            self._ending = EndRun(why, "failed")

    def _roll_back(self, place: Place, why: str, cut: float = 1.0) -> None:
        self._returns += 1
        before, controls = self.done, self.state.controls
        state = copy_of(place.state).with_controls(
            controls._replace(learning_rate=controls.learning_rate * cut)
        )
        self.state = with_other_data(state, self._returns)
        self._choose_loss()
        self._set_done(place.step)
        self._rollback = None
        self._transfer.clear()
        self.rules.roll_back(place.record, place.step)
        self.logbook.roll_back(place.step)
        self.saver.asked = True
        rate = self.learning_rate
        said = f"rolled back from step {before} to step {self.done}: {why}; learning rate now {rate:g}"
        self._tell("rollback", said, step=before, to=self.done, reason=why, learning_rate=rate)

    def _change_state(self, change: Callable[..., Any]) -> None:
        """A loss before the change says nothing about what follows, so the search for the best starts again."""
        before = self.state.params, task_state(self.state.optimizer)
        turn = change(*jax.device_get(before))
        structure(params=before[0], params_after_the_round=turn.params)
        structure(optimizer_state=before[1], optimizer_state_after_the_round=turn.optimizer)
        params, inner = jax.tree.map(jnp.asarray, (turn.params, turn.optimizer))
        optimizer = with_task_state(self.state.optimizer, inner)
        self.state = copy_of(self.state._replace(params=params, optimizer=optimizer))
        self.rules.start(self.done, self.rules.trend.skipped)
        self._best = self._place(copy_of(self.state))
        self.saver.asked = True
        self._tell("round", turn.message, step=self.done, **turn.fields)
        if turn.over:
            self._ending = self._ending or EndRun(turn.message)
        self._choose_loss()

    def _choose_loss(self) -> None:
        """Compiles again if the rounds of the task want another loss for these parameters."""
        rounds = self.program.task.rounds
        if rounds is not None and rounds.loss is not None:
            self.program.use(rounds.loss(jax.device_get(self.state.params)))

    # Commands.

    def poll_commands(self) -> None:
        """Carries out the commands that were sent since the last time."""
        if not self._in_sync:
            return
        posted = [dataclasses.asdict(command) for command in self.run.poll()] if self.run else []
        commands, is_late = broadcast_from_first((posted, self.saver.is_late()))
        self.saver.asked |= is_late
        for command in commands:
            self.say(answer(self, Command(**command)))
        if self.paused:
            self._check_interrupt()

    @property
    def _in_sync(self) -> bool:
        """Whether the first process can tell the others something: all of them wait where a window ends."""
        return not are_several() or self.rules.window_ends(self.done)

    @property
    def is_waiting(self) -> bool:
        """Whether it is paused, and nothing says that it should end."""
        return self.paused and self._ending is None

    def pause(self) -> None:
        self.paused = self.saver.asked = True
        if self.run:
            self.run.event("paused", step=self.done)

    def resume(self) -> None:
        self.paused = False
        if self.run:
            self.run.event("unpaused", step=self.done)

    def stop(self, by: str) -> None:
        self._ending = EndRun(f"by {by}", "stopped")

    def roll_back(self, to: int | Literal["best"]) -> None:
        """Returns to the best parameters, or to the checkpoint of a step."""
        self.on_metrics()
        self._roll_back(self._best if to == "best" else self.saver.at_step(self.state, to), "asked for")

    # Checkpoints.

    def save_if_due(self) -> None:
        """Starts to write a checkpoint if one is due."""
        if not self.saver.is_due(self.done, self._done_before):
            return
        self.on_metrics()
        if not self._rollback:
            self.logbook.write()  # A checkpoint never knows of more steps than the metrics.
            self.saver.save(self._place(self.state), self._best)

    def _place(self, state: State) -> Place:
        record = {
            **self._settings,
            **self.rules.to_json(),
            "rollbacks": self.rollbacks,
            "returns": self._returns,
            "seconds": self.seconds,
            "evaluation": self.logbook.evaluation,
        }
        return Place(self.done, state, record)

    # End.

    def is_over(self) -> bool:
        """Whether no further step is to be made."""
        if self._in_sync:
            self._check_interrupt()
        if self._ending is None and self.done >= self.config.steps:
            self._ending = EndRun()
        return self._ending is not None

    def _check_interrupt(self) -> None:
        """Ctrl-C and `stop.minutes` end the run."""
        interrupt, seconds = broadcast_from_first((self._interrupt.reason, self.seconds))
        minutes = self.config.stop.minutes
        if interrupt:
            self._ending = self._ending or EndRun(f"by {interrupt}", "stopped")
        if seconds > 60 * minutes and self.done < self.config.steps and not self.paused:
            self._ending = self._ending or EndRun(f"its time of {minutes:g} minutes is over")

    def start_closing(self) -> None:
        """Starts to write the last checkpoint. A run that failed keeps its best parameters."""
        assert self._ending is not None
        self.on_metrics()
        if self._ending.ended == "finished":
            self.evaluate()
        self.logbook.close()
        lost = self._rollback or self._ending.ended == "failed"
        self.saver.save(self._best if lost else self._place(self.state), self._best)

    def finish_closing(self) -> EndRun:
        """Waits until everything is on disk."""
        assert self._ending is not None
        self.saver.finish()
        self._save_laps()
        return self._ending

    def _save_laps(self) -> None:
        self._laps_saved = time.monotonic()
        if self.run and self.timer.every:
            self.run.save_laps(self.timer.times().to_json())

    @property
    def timer(self) -> Any:
        return self.program.timer

    @property
    def seconds(self) -> float:
        """Since the run was started, without the time between an end and a resumption."""
        return self._seconds_before + time.monotonic() - self._started

    def _tell(self, event: str, said: str, **fields: Any) -> None:
        self.say(said)
        if self.run:
            self.run.event(event, said, **fields)
