"""A run as its own process sees it: what it writes, and the commands that it takes."""

import contextlib
import math
import shutil
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from lapwing.core import LapwingError, Preempted, end_after, replace_file, sync_folder
from lapwing.timing import Phase

from ._append import LineWriter, sync_file
from ._border import read_header
from ._commands import COMMANDS, CommandError, check_command
from ._controls import Controls
from ._errors import JournalError, writing_to
from ._find import inside
from ._guard import FilesLostError, Guard
from ._inbox import Command, Inbox, Malformed
from ._json import encode, encode_columns, encode_numbers, plain, restore
from ._lock import Lock, LostLockError
from ._logged import LOGGED
from ._loop import Loop, Save, next_step
from ._media import is_media, stored_form
from ._recordable import refuse_secrets
from ._run import Run
from ._system import Sampler
from ._tail import BACK_TO

Number = TypeVar("Number", int, float)


class RunWriter(Run):
    """A run folder locked for writing, by `Run.create` or `Run.reopen`, until `end` or the end of a `with` block.

    In a `with` block an exception ends the run as failed, Ctrl-C and the command stop as stopped, SIGTERM as
    preempted, anything else as finished. A `LapwingError` before anything was recorded is a refusal: a new run leaves
    nothing behind, and one that was reopened stays as it was. If somebody deletes the folder or its metrics meanwhile,
    `log`, `poll` and `end` raise `FilesLostError`.
    """

    def __init__(self, folder: Path, lock: Lock, *, is_new: bool):
        super().__init__(folder)
        self._lock: Lock | None = lock
        self._is_new = is_new
        self._has_begun = False
        self._put_off: list[Callable[[], None]] = []
        self._early: list[Command] = []
        self._metrics = LineWriter(folder / "metrics.jsonl")
        self._guard = Guard(folder, self._metrics)
        self._synced_events = 0
        self._has_synced_names = False
        self._inbox = Inbox(folder / "control")
        self.checkpoints = folder / "checkpoints"
        self.elsewhere: dict[str, tuple[Any, Any]] = {}
        """For a run that was reopened: in which device, versions and variables this process differs from the first."""
        self.step: int | None = None
        """The newest step: `log` uses it where none is given."""
        self.loop_controls = Controls(self.events(), self.announce_controls)
        self._loop: Loop | None = None
        self._stop_sampling: Callable[[], object] = lambda: None

    def sample_system(self, counts_jax: bool = False) -> None:
        """Records what this process uses of its machine, until the run ends; see `Run.system`.

        **Arguments:** `counts_jax` says that JAX's backend is running, so that asking it does not start it.
        """
        # The thread does not know the run: it ends with a run that nobody has ended.
        self._stop_sampling = weakref.finalize(self, Sampler(self.folder, counts_jax).stop)

    def when_begun(self, action: Callable[[], None]) -> None:
        """Calls `action` before the first record of this process; never, if the run is refused before that."""
        self._must_be_held()
        if self._has_begun:
            action()
        else:
            self._put_off.append(action)

    def _begin(self) -> None:
        """To be called before anything is recorded: writes what was put off until then."""
        self._must_be_held()
        if not self._has_begun:
            self._has_begun = True
            for action in self._put_off:
                action()

    def log(self, /, *records: Mapping[str, Any], step: int | None = None, **values: Any) -> None:
        """Appends metrics: `run.log(loss=0.5)`, or records with their own step, `run.log({"step": 3, "loss": 0.5})`.

        A value is a number, or one of the things that `report` and the board show: a text, an `Image`, a `Histogram`, a
        `Table`, a figure of matplotlib. The default step is that of `steps`, else the newest that was logged. Each call
        is one write to the kernel, so a call with many records is cheaper than many calls.

        >>> import tempfile
        >>> with Run.create("demo", runs_dir=tempfile.mkdtemp()) as run:
        ...     run.log(step=1, loss=0.5, sample="once upon a time")
        >>> run.latest()["loss"], [(entry["name"], entry["text"]) for entry in run.logged()]
        (0.5, [('sample', 'once upon a time')])
        """
        self._begin()
        if values:
            records = (*records, {"step": self._default_step(values) if step is None else step, **values})
        now = round(time.time(), 3)
        lines = []
        for record in records:
            if "step" not in record:
                raise JournalError(f"a metrics record needs a 'step', but one has only {', '.join(record)}")
            row = record if "time" in record else {**record, "time": now}
            try:
                lines.append(encode_numbers(row))
            except TypeError:
                if numbers := self._without_media(row):
                    lines.append(encode_numbers(numbers))
        if records:
            self.step = records[-1]["step"]
        if lines:
            self._write_metrics(lines)
            self._guard.check()

    def _write_metrics(self, lines: Iterable[str]) -> None:
        with writing_to(self.folder):
            self._metrics.write(lines)

    def _default_step(self, values: Mapping[str, Any]) -> int:
        if self.step is None:
            raise JournalError(
                f"at which step is {next(iter(values))} logged? loop over run.steps(n), or write run.log(step=..., ...)"
            )
        return self.step

    def _without_media(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Logs what is not a number and returns the numbers; None if there are none."""
        media = {name: value for name, value in row.items() if is_media(value)}
        numbers = {name: value for name, value in row.items() if name not in media}
        encode_numbers(numbers)  # If something else is wrong, nothing of the record is logged.
        for name, value in media.items():
            stored, step = stored_form(value), int(row["step"])
            fields: dict[str, Any] = {"step": step, "name": name, "kind": stored.kind}
            if stored.content is not None:
                fields["file"] = stored.file_name(name, step)
                self.put(fields["file"], stored.content)
            self.event(LOGGED, **fields, **stored.fields)
        return numbers if numbers.keys() - {"step", "time"} else None

    def log_columns(self, columns: Mapping[str, Any]) -> None:
        """As `log`, for many steps at once: a list or an array of numbers for each name, among them `step`. For a loop
        that polls: that the files are still there is checked by `poll`."""
        self._begin()
        if "step" not in columns:
            raise JournalError(f"metrics need a column 'step', but there are only {', '.join(columns)}")
        self._write_metrics(encode_columns(columns, time=round(time.time(), 3)))
        if len(columns["step"]):
            self.step = int(columns["step"][-1])

    def steps(
        self,
        n: int | None = None,
        *,
        start: int | None = None,
        checkpoint: Save | None = None,
        checkpoint_every: int = 0,
    ) -> Iterator[int]:
        """The steps of a loop of your own: `for step in run.steps(1000)`; between two of them the run takes commands.

        A run that was reopened continues after its last logged step. Ctrl-C, SIGTERM and the command stop end the loop
        after the step; the code after it runs, `stopped_by` says why, and the `with` block ends the run as stopped, or
        preempted by SIGTERM.

        **Arguments**
        - `n`: the number of steps, with those before the run was reopened; None for a loop without an end.
        - `start`: the first step; what was logged from it on is undone. For a run that resumes from a checkpoint.
        - `checkpoint`: called as `checkpoint(done)` after `done` steps: at the command checkpoint, before a pause,
          after the last step, and every `checkpoint_every` steps.

        >>> import tempfile
        >>> with Run.create("demo", runs_dir=tempfile.mkdtemp()) as run:
        ...     for step in run.steps(3):
        ...         run.log(loss=1 / (1 + step))
        >>> run.columns()["step"].tolist(), run.state
        ([0.0, 1.0, 2.0], 'finished')
        """
        self._must_be_held()
        for name, value in (("n", n), ("start", start), ("checkpoint_every", checkpoint_every)):
            if value is not None and (not isinstance(value, int) or value < 0):
                raise JournalError(f"{name} should be a number of steps, but is {value!r}")
        logged = next_step(self.raw_columns())
        if start is None:
            start = max(logged, self._loop.done if self._loop else 0)
        elif start < logged:
            self.back_to(start)
        stopped_by = self.stopped_by
        self._loop = Loop(self, start, n, checkpoint, checkpoint_every, stopped_by)
        return self._loop.steps()

    @property
    def stopped_by(self) -> str | None:
        """Who ended the loop over `steps` early: "the command stop", "Ctrl-C" or "SIGTERM"; None if nobody did."""
        return self._loop.stopped_by if self._loop else None

    def lap(self, name: str, sync: Callable[[], object] | None = None) -> Phase:
        """Times a phase of a step, inside a loop over `steps`: `with run.lap("forward"):`.

        **Arguments:** `sync` is called at the end of the phase, to wait for work of a device.
        """
        if self._loop is None:
            raise JournalError(f"the phase {name!r} is in no step; loop over run.steps(n)")
        return self._loop.laps(name, sync)

    def control(
        self, name: str, default: Number, *, low: float = -math.inf, high: float = math.inf, about: str = ""
    ) -> Number:
        """The present value of a control, which `lapwing set RUN NAME=VALUE` and the board can change.

        The first call registers it with its default and its range. A value that was set before the run was reopened
        still holds.

        >>> import tempfile
        >>> run = Run.create("demo", runs_dir=tempfile.mkdtemp())
        >>> run.control("heat", 1.0, low=0.0, high=2.0, about="temperature of the samples")
        1.0
        >>> run.controls
        {'heat': 1.0}
        """
        return self.loop_controls.value(name, default, low, high, about)

    def back_to(self, step: int) -> None:
        """The run continues from an earlier step: rows of that step and later are no longer part of it.

        The lines stay in the file; `columns()` and `logged()` leave them out.
        """
        self._begin()
        self.step = step
        if any(entry["step"] >= step for entry in self.logged()):
            self.event(BACK_TO, step=step)
        self._write_metrics([encode({BACK_TO: step, "time": round(time.time(), 3)})])

    def sync(self) -> None:
        """Returns when all metrics and events are on the disk, where no power failure takes them. To be called before a
        checkpoint is written, which should not know of more steps than the metrics."""
        with writing_to(self.folder):
            self._metrics.sync()
            self._synced_events = sync_file(self.folder / "events.jsonl", self._synced_events)
            if not self._has_synced_names:  # Of the files in the folder, and of the folder.
                sync_folder(self.folder)
                sync_folder(self.folder.parent)
                self._has_synced_names = True

    def event(self, event: str, /, say: str | None = None, **fields: Any) -> None:
        """Appends an event for programs and, if `say` is given, a line of journal.md for people."""
        self._must_be_held()
        self._record(event, say, fields)

    def announce_controls(
        self, values: Mapping[str, float], about: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        """Writes what `set` can change in this run, with the present values; see `Run.controls`.

        **Arguments:** `about` has for a name `type` ("float" or "int"), `help`, and `low` and `high` if it has a range.
        """
        fields: dict[str, Any] = {"values": dict(values)} | ({"about": dict(about)} if about else {})
        self._must_be_held()
        if not self._is_new:  # It says nothing about what happened: a new run can still be refused after it.
            self._begin()
        super()._record("controls", None, fields)

    def _record(self, event: str, say: str | None, fields: Mapping[str, Any]) -> None:
        if self._lock is not None:  # A note may be added after the end.
            self._begin()
        super()._record(event, say, fields)

    def put_back(self, command: Command) -> None:
        """The next `poll` returns this command again."""
        self._early.append(command)

    def poll(self) -> list[Command]:
        """The commands that arrived since the last call, in the order posted, each to be answered by `applied` or
        `refused`. What the table of commands does not allow is refused here. Costs about 2 µs when nothing is new.
        """
        self._must_be_held()
        self._guard.check()
        if not self._is_new:
            self._begin()
        accepted, self._early = self._early, []
        for arrived in self._inbox.poll():
            if isinstance(arrived, Malformed):
                say = f"refused {arrived}: {arrived.reason}"
                self.event("refused", say, file=arrived.file, reason=arrived.reason)
                self._inbox.drop(arrived)
                continue
            try:
                name, arguments = check_command(arrived.name, arrived.arguments, self.control_arguments)
                command = Command(arrived.id, name, arguments)
                if (
                    COMMANDS[name].states is None
                ):  # It needs no process: a note that was posted like a command.
                    self.send(name, arguments)
                    self.applied(command)
                else:
                    accepted.append(command)
            except (CommandError, JournalError) as error:
                self.refused(arrived, str(error))
        return accepted

    def applied(self, command: Command, outcome: str = "", **fields: Any) -> None:
        """Answers a command that was carried out; `outcome` says what changed."""
        self._answer(command, "applied", outcome, outcome=outcome, **fields)

    def refused(self, command: Command, reason: str) -> None:
        """Answers a command that cannot be carried out."""
        self._answer(command, "refused", reason, reason=reason)

    def _answer(self, command: Command, event: str, words: str, **fields: Any) -> None:
        asked = {"id": command.id, "command": command.name, "arguments": command.arguments}
        self.event(event, f"`{command}` {event}" + (f": {words}" if words else ""), **asked, **fields)
        self._inbox.drop(command)

    def reconfigure(self, config: Any) -> None:
        """Writes another config into config.json, for a run that is resumed with changes."""
        self._begin()
        settings = restore(plain(config))
        refuse_secrets(settings)
        self.config = settings
        self._replace("config.json", {**read_header(self.folder), "config": self.config})

    def add_environment(self, **entries: Any) -> None:
        """Adds to environment.json what is known only after the start, such as what was compiled."""
        self._begin()
        self._replace("environment.json", {**self.environment, **entries})

    def save_laps(self, laps: Any) -> None:
        """Replaces laps.json."""
        self._begin()
        self._replace("laps.json", laps)

    def _replace(self, name: str, content: Any) -> None:
        with writing_to(self.folder):
            replace_file(self.folder / name, encode(content) + "\n")

    def add_picture(self, picture: Path | bytes, name: str, caption: str) -> Path:
        """Copies a picture (a file, or its content) to pictures/ and shows it in journal.md."""
        self._begin()
        inside(self.folder / "pictures", name)
        path = self.put(f"pictures/{name}", picture if isinstance(picture, bytes) else picture.read_bytes())
        say = f"{caption}\n\n![{caption}](pictures/{name})\n"
        self.event("picture", say, file=f"pictures/{name}", caption=caption)
        return path

    def end(
        self, state: Literal["finished", "failed", "stopped", "preempted"], outcome: str, **fields: Any
    ) -> None:
        """Records how the run ended and releases the folder. It can still be read and reopened."""
        lock = self._must_be_held()
        lost = self._guard.error()
        if lost:
            state, outcome = "failed", str(lost)
        try:
            if self._guard.has_folder():
                self.event(state, f"**{state}**: {outcome}", outcome=outcome, **fields)
        finally:
            self._release(lock)
        if lost:
            raise lost

    def _release(self, lock: Lock) -> None:
        self._stop_sampling()
        self._lock = None
        self._metrics.close()
        lock.release()

    @property
    def has_ended(self) -> bool:
        """Whether `end` was called: the folder is no longer this process's to write."""
        return self._lock is None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is None:
            return
        if isinstance(error, LapwingError) and not self._has_begun:
            if self._is_new:
                shutil.rmtree(self.folder, ignore_errors=True)
            self._release(self._lock)
        elif error is None:
            self._end_normally()
        elif isinstance(error, FilesLostError):
            with contextlib.suppress(FilesLostError):
                self.end("failed", str(error))
        elif isinstance(error, Exception):
            self.end("failed", f"{type(error).__name__}: {error}")
        else:
            self.end(
                "preempted" if isinstance(error, Preempted) else "stopped",
                f"interrupted by {type(error).__name__}",
            )

    def _end_normally(self) -> None:
        if self._loop is None:
            self.end("finished", "done")
        else:
            ended = end_after(self.stopped_by) if self.stopped_by else "finished"
            self.end(ended, self._loop.outcome, steps=self._loop.done)

    def _must_be_held(self) -> Lock:
        if self._lock is None:
            again = f"Run.reopen({str(self.folder)!r})"
            raise JournalError(f"the run {self.name} has ended; {again} continues it")
        try:
            self._lock.check(self.folder)
            return self._lock
        except LostLockError as error:
            lost = error
        self._release(
            self._lock
        )  # Not even that it has failed is recorded: the folder may be somebody else's.
        raise lost if self._guard.has_folder() else self._guard.error() or lost
