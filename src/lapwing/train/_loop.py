"""One run under way: what happens between two calls of the device. `_fit.py` says in which order.

The loop carries data from one part to the next: metrics from the device (`Transfer`) to the rules and the logbook,
decisions of the rules and commands of people to the state (`Position`), and the state to checkpoints.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from lapwing.core import Interrupt, end_after
from lapwing.journal import Command, FilesLostError, RunWriter
from lapwing.task import Callback

from ._callbacks import Callbacks
from ._compiling import other_bits
from ._config import FitConfig
from ._config_json import allowed_changes, in_words, settings_of, with_defaults
from ._control import announce, answer, control_values
from ._devices import on_one_device
from ._evaluation import evaluation_names
from ._feed import Feed
from ._logbook import Logbook
from ._position import Position
from ._processes import agree_on_end, are_several, broadcast_from_first
from ._program import Program
from ._rule import ChangeState, Decision, EndRun, MarkBest, RollBackToBest, Rule, SetLearningRate
from ._rules import Rules, check_metrics, default_rules
from ._saver import Place, Saver
from ._state import Controls, State, copy_of
from ._timer import LapsFile
from ._transfer import Deliver, Transfer
from ._version_0_1 import flat_controls
from ._watching import Watching

_MOST_NAMED = 5


class TrainingLoop:
    """A run under way. `fetch` brings the metrics of all calls to those who expect them."""

    def __init__(
        self,
        program: Program,
        state: State,
        feed: Feed,
        fetch: Callable[[], None],
        config: FitConfig,
        run: RunWriter | None,
        interrupt: Interrupt,
        say: Callable[[str], None],
        *,
        rules: Sequence[Rule] = (),
        callbacks: Sequence[Callback] = (),
        allow_change: bool = False,
    ):
        self.config, self.run, self.say, self.program = config, run, say, program
        self.feed = feed
        self.position = Position(program, config, state)
        check_metrics(config, None, self._evaluation_names(state))
        learning_rate = self.position.learning_rate
        self.rules = Rules(default_rules(program.task, config, rules, learning_rate), config)
        self.callbacks = Callbacks(callbacks)
        self.watching = Watching(self)
        self.logbook = Logbook(run, config)
        self.saver = Saver(run, config.checkpoint)
        self._transfer = Transfer(fetch)
        self._laps = LapsFile(run, program.timer)
        self._interrupt = interrupt
        self._started = time.monotonic()
        self._seconds_before = 0.0  # Of the processes that trained the run before this one.
        self._done_before = 0
        self._lost: str | None = None
        self.rollbacks = self.returns = 0
        self.paused = False
        self._recorded = ""  # The fingerprint of the program that the run folder knows of.
        self._rollback: RollBackToBest | None = None  # Decided, but not carried out yet.
        self._ending: EndRun | None = None
        controls = control_values(state.controls)
        self._settings = {"config": settings_of(config), "controls": settings_of(controls)}
        self.best = self._resume(allow_change)
        announce(self)

    def _resume(self, allow_change: bool) -> Place:
        """Continues from the newest checkpoint, if there is one. Returns the best state so far."""
        found = self.saver.newest(self.position.state)
        if found is None:
            if self.run and self.run.latest():
                self.logbook.restore(0)
            self.position.choose_loss()
            return self._place(self.position.snapshot())
        now, best = found
        record = now.record
        before = with_defaults(record["config"], self.config)
        if different := allowed_changes(before, self._settings["config"], allow=allow_change):
            self._tell("config changed", f"the config changed: {in_words(different)}", changes=different)
        state = copy_of(now.state)
        state = state.with_controls(self._changed_controls(flat_controls(record["controls"])))
        self.position.move_to(state, now.step)
        self.rules.restore(record, now.step)
        self.watching.restore(record.get("watch"), now.step)
        self.rollbacks, self.returns = record["rollbacks"], record["returns"]
        self.feed.restore(record.get("feed"), now.step, self.returns)
        self._seconds_before, self._done_before = record["seconds"], now.step
        self.logbook.evaluation = record["evaluation"]
        missing = self.logbook.restore(now.step)
        self.logbook.latest = broadcast_from_first(self.logbook.latest)
        self._tell("resumed", f"resumed from the checkpoint of step {now.step}", step=now.step)
        self._tell_damage(missing)
        if self.saver.has_lost_best:
            self.rules.forget_best(now.step)
        if self.run and (different := other_bits(self.run.elsewhere)):
            self._tell("bits may differ", different)
        return best

    def _tell_damage(self, missing: Sequence[range]) -> None:
        """What the run folder has lost before this process opened it."""
        if missing:
            count = sum(map(len, missing))
            which = ", ".join(
                str(each[0]) if len(each) == 1 else f"{each[0]} to {each[-1]}"
                for each in missing[:_MOST_NAMED]
            )
            more = ", ..." if len(missing) > _MOST_NAMED else ""
            said = f"{count} steps missing: metrics.jsonl has no rows of the steps {which}{more}"
            self._tell("steps missing", said, count=count)
        if self.run and self.run.damaged:
            said = f"{self.run.damaged} damaged lines of metrics.jsonl and events.jsonl are skipped"
            self._tell("damaged lines", said, count=self.run.damaged)

    def _changed_controls(self, before: Mapping[str, float]) -> Controls:
        """What the config sets to another value than when the checkpoint was written."""
        now, new = self._settings["controls"], self.position.state.controls
        return {name: new[name] for name in new if before.get(name, now[name]) != now[name]}

    def _evaluation_names(self, state: State) -> list[str] | None:
        """Those of the evaluation, if an option names one."""
        if not any(name.startswith("eval_") for name in (self.config.best, self.config.stop.metric)):
            return None
        return evaluation_names(self.program.task, self.config, state)

    # Steps.

    @property
    def next_count(self) -> int:
        """How many steps the next call makes; 0 where the data end. May wait for data."""
        return self.feed.available(self.position.next_count)

    def undisturbed_until(self) -> int:
        """The step up to which calls can follow each other with nothing done between them, as far as steps decide."""
        every = (self.config.evaluate_every, *self.saver.every, *self.rules.lengths)
        done = self.position.done
        return min([self.config.steps, *((done // each + 1) * each for each in every if each)])

    def may_go_ahead(self) -> bool:
        """Whether a window has ended, and nothing else is known to be due before the next call."""
        position = self.position
        return (
            self.rules.window_ends(position.done)
            and position.done < self.config.steps
            and self.feed.can_go_ahead
            and self.program.task.rounds is None
            and not position.passed(self.config.evaluate_every)
            and not self.saver.is_due(position.done, position.before)
        )

    def expect(self, steps: range) -> Deliver:
        """Calls of these steps were given to the device. **Returns** what takes their metrics."""
        return self._transfer.expect(steps)

    def on_metrics(self) -> None:
        """Shows the metrics of all calls to the rules, and keeps them."""
        rows = self._transfer.fetch()
        if rows is None or self._rollback:
            return
        self._rollback = self.rules.on_steps(rows.steps.start, rows.columns)
        self.logbook.add(rows.split(self._rollback.step + 1)[0] if self._rollback else rows)
        self.watching.on_metrics(rows)

    def end_window(self) -> None:
        """Lets the rules decide, where a window of steps ends; carries out a rollback anywhere."""
        self.logbook.start_writing()
        ends = self.rules.window_ends(self.position.done)
        # Several processes must see the same metrics at the same step, so they do not look at the clock.
        if ends or (not are_several() and self._transfer.is_late()):
            self.on_metrics()
        # Batches of a stream that were read before the host knew of the rollback are lost. How many is a matter of
        # time, unless it waits for the end of the window.
        if self._rollback and (ends or not self.feed.is_stream):
            self._carry_out([self._rollback])
        elif ends:
            self._decide(self.rules.on_window)
            self._laps.save_if_late()
        self._record_program()

    def _record_program(self) -> None:
        """Writes what was compiled into the run folder, once, and again if it is another program."""
        if self.run and self.program.fingerprint != self._recorded:
            self._recorded = self.program.fingerprint
            self.run.add_environment(compiled=self.program.about())
            if self.program.how:
                self.run.event("compiled", f"compiled: {self.program.how}")

    def evaluate_if_due(self) -> None:
        """This comes after the checkpoint of a step, so that a resumed run evaluates there too."""
        if self.position.passed(self.config.evaluate_every) and self.evaluate():
            self._decide(self.rules.on_evaluation)

    def evaluate(self) -> bool:
        """Whether the parameters were evaluated now, or just before. Not where a rollback is due."""
        if self.program.evaluate is None:
            return False
        self.on_metrics()
        if self._rollback:
            return False
        if self.logbook.evaluated_at != self.position.done:
            values = self.program.evaluate(on_one_device(self.position.state))
            named = {f"eval_{name}": float(value) for name, value in values.items()}
            # Two hosts may round differently, but must not decide differently.
            self.logbook.add_evaluation(self.position.done, broadcast_from_first(named))
            self.watching.on_evaluation(self.position.done, self.logbook.evaluation)
            self.callbacks.notify("on_evaluation", self)
        return True

    # Decisions.

    def _decide(self, rules: Callable[..., list[Decision]]) -> None:
        self._carry_out(rules(self.position.done, self.newest_metrics, self.position.learning_rate))

    @property
    def newest_metrics(self) -> dict[str, float]:
        """Of the last step, and of the last evaluation."""
        return {**self.logbook.latest, **self.logbook.evaluation}

    def _carry_out(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            match decision:
                case MarkBest():
                    self.best = self._place(self.position.snapshot())
                case SetLearningRate(new, reason):
                    said = f"{reason}: {self.position.rate_name} {self.position.learning_rate:g} → {new:g}"
                    self.position.set_learning_rate(new)
                    said += self.position.effective_now(new)
                    self._tell(
                        "learning_rate", said, step=self.position.done, **{self.position.rate_name: new}
                    )
                case EndRun():
                    self._ending = self._ending or decision
                case ChangeState(change):
                    self._change_state(change)
                case RollBackToBest(step, reason, cut):
                    self._roll_back_or_fail(f"{reason} at step {step}", cut)
                    return  # The other decisions were about steps that are undone.

    def _change_state(self, change: Callable[..., Any]) -> None:
        """A loss before the change says nothing about what follows, so the search for the best starts again."""
        turn = self.position.change(change)
        self.rules.start(self.position.done, self.rules.trend.skipped)
        self.best = self._place(self.position.snapshot())
        self.saver.asked = True
        self._tell("round", turn.message, step=self.position.done, **turn.fields)
        if turn.over:
            self._ending = self._ending or EndRun(turn.message)

    def _roll_back_or_fail(self, why: str, cut: float) -> None:
        if self.rollbacks < self.config.rollback.times:
            self.rollbacks += 1
            self._roll_back(self.best, why, cut)
        else:
            after = f" after {self.rollbacks} rollbacks" if self.rollbacks else ""
            self._ending = EndRun(f"{why}{after}; a smaller learning rate, or a clip, may help", "failed")

    def _roll_back(self, place: Place, why: str, cut: float = 1.0) -> None:
        before = self.position.done
        self.returns += 1
        self._rollback = None
        self._transfer.clear()
        self.position.roll_back(place.state, place.step, self.returns, cut)
        self.feed.roll_back(self.returns)
        self.rules.roll_back(place.record, place.step)
        self.watching.roll_back(place.step)
        self.logbook.roll_back(place.step)
        self.saver.asked = True
        name, rate = self.position.rate_name, self.position.learning_rate
        said = f"rolled back from step {before} to step {place.step}: {why}; {name} now {rate:g}"
        said += self.position.effective_now(rate)
        self._tell("rollback", said, step=before, to=place.step, reason=why, **{name: rate})
        self.callbacks.notify("on_rollback", self, reason=why)

    # Commands.

    def poll_commands(self) -> None:
        """Carries out the commands that were sent since the last time."""
        if not self._in_sync:
            return
        posted = self._posted()
        commands, is_late = broadcast_from_first((posted, self.saver.is_late()))
        self.saver.asked |= is_late
        for command in commands:
            self.say(answer(self, Command(**command)))
        if self.paused:
            self._check_interrupt()

    def _posted(self) -> list[dict[str, Any]]:
        """The commands. If the metrics are gone, the run fails; its state can still be saved."""
        try:
            return [dataclasses.asdict(command) for command in self.run.poll()] if self.run else []
        except FilesLostError as error:
            if self.run is None or self.run.has_ended:  # The whole folder is gone.
                raise
            self._lost = str(error)
            return []

    @property
    def _in_sync(self) -> bool:
        """Whether the first process can tell the others something: all of them wait where a window ends."""
        return not are_several() or self.rules.window_ends(self.position.done)

    @property
    def is_waiting(self) -> bool:
        """Whether it is paused, and nothing says that it should end."""
        return self.paused and self._ending is None

    def pause(self) -> None:
        self.paused = self.saver.asked = True
        if self.run:
            self.run.event("paused", step=self.position.done)

    def resume(self) -> None:
        self.paused = False
        if self.run:
            self.run.event("unpaused", step=self.position.done)

    def stop(self, by: str) -> None:
        self._ending = EndRun(f"by {by}", "stopped")

    def roll_back(self, to: int | Literal["best"]) -> None:
        """Returns to the best state, or to the checkpoint of a step."""
        self.on_metrics()
        place = self.best if to == "best" else self.saver.at_step(self.position.state, to)
        self._roll_back(place, "asked for")

    # Checkpoints.

    def save_if_due(self) -> None:
        """Starts to write a checkpoint if one is due."""
        if not self.saver.is_due(self.position.done, self.position.before):
            return
        self.on_metrics()
        if not self._rollback:
            self.logbook.write()  # A checkpoint never knows of more steps than the metrics.
            self._save(self._place(self.position.state))

    def _save(self, place: Place) -> None:
        self.saver.save(place, self.best)
        if self.run:
            self.callbacks.notify("on_checkpoint", self)

    def _place(self, state: State | Callable[[], State]) -> Place:
        record = {
            **self._settings,
            **self.rules.to_json(),
            "rollbacks": self.rollbacks,
            "returns": self.returns,
            "seconds": self.seconds,
            "evaluation": self.logbook.evaluation,
            "feed": self.feed.position(),
            "watch": self.watching.to_json(),
        }
        return Place(self.position.done, state, record)

    # End.

    def is_over(self) -> bool:
        """Whether no further step is to be made."""
        if self._in_sync:
            self._check_interrupt()
        if self._ending is None and self.position.done >= self.config.steps:
            self._ending = EndRun()
        if self._ending is None and not self.next_count:
            self._ending = EndRun("the data ended")
        return self._ending is not None

    def _check_interrupt(self) -> None:
        """Ctrl-C, `stop.minutes`, a callback that failed and files that are gone end the run."""
        spent = self.seconds - self._seconds_before  # A run that is resumed has the minutes again.
        interrupt, spent, failure = agree_on_end(self._interrupt.reason, spent, self._failure)
        minutes = self.config.stop.minutes
        if failure:
            self._ending = self._ending or EndRun(failure, "failed")
        if interrupt:
            self._ending = self._ending or EndRun(f"by {interrupt}", end_after(interrupt))
        # If compiling alone takes the minutes, a run that is resumed again and again still gets further.
        moved = self.position.done != self._done_before
        if spent > 60 * minutes and moved and self.position.done < self.config.steps and not self.paused:
            self._ending = self._ending or EndRun(f"its time of {minutes:g} minutes is over")

    @property
    def _failure(self) -> str | None:
        """Why the run fails although its state is sound."""
        return self._lost or self.callbacks.failure

    def start_closing(self) -> None:
        """Starts to write the last checkpoint. A run that failed keeps its best state."""
        assert self._ending is not None
        self.on_metrics()
        is_new = self.logbook.evaluated_at != self.position.done
        if self._ending.ended == "finished" and self.evaluate() and is_new:
            known = self.newest_metrics
            decisions = self.rules.on_evaluation(self.position.done, known, self.position.learning_rate)
            self._carry_out([decision for decision in decisions if isinstance(decision, MarkBest)])
        self.logbook.close()
        lost = self._rollback or (self._ending.ended == "failed" and not self._failure)
        self._save(self.best if lost else self._place(self.position.state))

    def finish_closing(self) -> EndRun:
        """Waits until everything is on disk."""
        assert self._ending is not None
        self.saver.finish()
        self._laps.save()
        if self.callbacks.failure and self._ending.ended != "failed":
            self._ending = EndRun(self.callbacks.failure, "failed")
        return self._ending

    @property
    def seconds(self) -> float:
        """Since the run was started, without the time between an end and a resumption."""
        return self._seconds_before + time.monotonic() - self._started

    def _tell(self, event: str, said: str, **fields: Any) -> None:
        self.say(said)
        if self.run:
            self.run.event(event, said, **fields)
