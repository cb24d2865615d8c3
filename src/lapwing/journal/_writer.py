"""A run as its own process sees it: the folder is created, locked and written here."""

import re
import secrets
import shutil
import string
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from lapwing.core import replace_file

from . import _story
from ._append import LineWriter, append_text
from ._commands import COMMANDS, CommandError, check_command
from ._environment import environment
from ._errors import JournalError, writing_to
from ._find import inside, stamp
from ._inbox import Command, Inbox, Malformed
from ._json import encode, encode_columns, encode_numbers, plain, restore
from ._legacy import FORMAT
from ._lock import Lock
from ._logged import LOGGED
from ._media import is_media, stored_form
from ._run import Run
from ._tail import BACK_TO

_LETTERS = string.ascii_lowercase + string.digits


class RunWriter(Run):
    """A run folder locked for writing, by `Run.create` or `Run.reopen`, until `end` or the end of a `with` block.

    In a `with` block an exception ends the run as failed, Ctrl-C as stopped, anything else as finished.
    """

    def __init__(self, folder: Path, lock: Lock):
        super().__init__(folder)
        self._lock: Lock | None = lock
        self._metrics = LineWriter(folder / "metrics.jsonl")
        self._inbox = Inbox(folder / "control")
        self.checkpoints = folder / "checkpoints"
        self.step: int | None = None
        """The newest step: `log` uses it where none is given."""

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
        self._must_be_held()
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
        """As `log`, for many steps at once: a list or an array of numbers for each name, among them `step`."""
        self._must_be_held()
        if "step" not in columns:
            raise JournalError(f"metrics need a column 'step', but there are only {', '.join(columns)}")
        with writing_to(self.folder):
            self._metrics.write(encode_columns(columns, time=round(time.time(), 3)))
        if len(columns["step"]):
            self.step = int(columns["step"][-1])

    def back_to(self, step: int) -> None:
        """The run continues from an earlier step: rows of that step and later are no longer part of it.

        The lines stay in the file; `columns()` and `logged()` leave them out.
        """
        self._must_be_held()
        self.step = step
        if any(entry["step"] >= step for entry in self.logged()):
            self.event(BACK_TO, step=step)
        with writing_to(self.folder):
            self._metrics.write([encode({BACK_TO: step, "time": round(time.time(), 3)})])

    def event(self, event: str, /, say: str | None = None, **fields: Any) -> None:
        """Appends an event for programs and, if `say` is given, a line of journal.md for people."""
        self._must_be_held()
        self._record(event, say, fields)

    def announce_controls(self, values: Mapping[str, float]) -> None:
        """Writes what `set` can change in this run, with the present values; see `Run.controls`."""
        self.event("controls", values=dict(values))

    def poll(self) -> list[Command]:
        """The commands that arrived since the last call, in the order posted, each to be answered by `applied` or
        `refused`. What the table of commands does not allow is refused here. Costs about 2 µs when nothing is new.
        """
        accepted = []
        for arrived in self._inbox.poll():
            if isinstance(arrived, Malformed):
                say = f"refused the file {arrived.file} in control/: {arrived.reason}"
                self.event("refused", say, file=arrived.file, reason=arrived.reason)
                self._inbox.drop(arrived)
                continue
            try:
                name, arguments = check_command(arrived.name, arrived.arguments, self.controls)
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
        self._must_be_held()
        self.config = restore(plain(config))
        self._replace("config.json", {**self._header(), "config": self.config})

    def save_laps(self, laps: Any) -> None:
        """Replaces laps.json."""
        self._must_be_held()
        self._replace("laps.json", laps)

    def _replace(self, name: str, content: Any) -> None:
        with writing_to(self.folder):
            replace_file(self.folder / name, encode(content) + "\n")

    def add_picture(self, picture: Path | bytes, name: str, caption: str) -> Path:
        """Copies a picture (a file, or its content) to pictures/ and shows it in journal.md."""
        self._must_be_held()
        inside(self.folder / "pictures", name)
        path = self.put(f"pictures/{name}", picture if isinstance(picture, bytes) else picture.read_bytes())
        say = f"{caption}\n\n![{caption}](pictures/{name})\n"
        self.event("picture", say, file=f"pictures/{name}", caption=caption)
        return path

    def end(self, state: Literal["finished", "failed", "stopped"], outcome: str, **fields: Any) -> None:
        """Records how the run ended and releases the folder. It can still be read and reopened."""
        lock = self._must_be_held()
        try:
            self.event(state, f"**{state}**: {outcome}", outcome=outcome, **fields)
        finally:
            self._lock = None
            self._metrics.close()
            lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is None:
            return
        if error is None:
            self.end("finished", "done")
        elif isinstance(error, Exception):
            self.end("failed", f"{type(error).__name__}: {error}")
        else:
            self.end("stopped", f"interrupted by {type(error).__name__}")

    def _must_be_held(self) -> Lock:
        if self._lock is None:
            again = f"Run.reopen({str(self.folder)!r})"
            raise JournalError(f"the run {self.name} has ended; {again} continues it")
        return self._lock


def create(
    experiment: str, config: Any, runs_dir: Path, device: str | None, name: str | None = None
) -> RunWriter:
    """Creates a run. Its folder gets its name when everything is in it, so no reader sees half a run."""
    now = time.time()
    settings = restore(plain(config if config is not None else {}))
    header = {"format": FORMAT, "experiment": experiment, "created": now, "config": settings}
    surroundings = environment(device)
    with writing_to(runs_dir):
        runs_dir.mkdir(parents=True, exist_ok=True)
        folder, draft = _chosen_name(name, runs_dir) if name else _free_name(experiment, runs_dir, now)
        try:
            lock = Lock(draft)
            for name in ("control", "checkpoints"):
                (draft / name).mkdir()
            replace_file(draft / "environment.json", encode(surroundings) + "\n")
            append_text(draft / "journal.md", _story.opening(folder.name, settings, surroundings, now))
            replace_file(draft / "config.json", encode(header) + "\n")
            draft.rename(folder)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        run = RunWriter(folder, lock)
    run.event("started", "started", experiment=experiment)
    return run


def reopen(folder: Path, device: str | None) -> RunWriter:
    """Opens a run for writing again. Commands that are still in the inbox are out of date, so they are refused."""
    with writing_to(folder):
        lock = Lock(folder)
        try:
            run = RunWriter(folder, lock)
        except BaseException:
            lock.release()
            raise
    for command in run.poll():
        run.refused(command, "it was posted while the run was not running")
    changed = _story.changes(run.environment, environment(device))
    differs = "".join(f"\n{path}: {old} → {new}" for path, (old, new) in changed.items())
    run.event("restarted", "**restarted**" + differs, changed=changed)
    return run


def _free_name(experiment: str, runs_dir: Path, now: float) -> tuple[Path, Path]:
    """A free name, and an exclusive hidden folder in which the run is prepared.

    The exclusive `mkdir` comes first: only the process that made the hidden folder checks and takes the name.
    """
    word = re.sub(r"[^a-z0-9]+", "-", experiment.lower())[:40].strip("-") or "run"
    while True:
        name = f"{stamp(now)}-{word}-{_four_letters()}"
        folder, draft = runs_dir / name, runs_dir / f".{name}"
        try:
            draft.mkdir()
        except FileExistsError:
            continue
        if not folder.exists():
            return folder, draft
        draft.rmdir()


def _chosen_name(name: str, runs_dir: Path) -> tuple[Path, Path]:
    """The same for a given name, which must be free. If two processes choose it, renaming fails for the second."""
    if name.startswith(".") or Path(name).name != name:
        raise JournalError(f"a run's name should be one word without slashes or a leading dot, not {name!r}")
    folder, draft = runs_dir / name, runs_dir / f".{name}-{_four_letters()}"
    if folder.exists():
        raise JournalError(f"there is a run {name!r} in {runs_dir} already; Run.reopen continues it")
    draft.mkdir()
    return folder, draft


def _four_letters() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(4))
