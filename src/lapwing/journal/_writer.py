"""A run as its own process sees it: the folder is made, held and written here."""

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
from ._environment import environment
from ._errors import JournalError, writing_to
from ._find import inside, stamp
from ._inbox import Command, Inbox, Malformed
from ._json import encode, encode_columns, encode_numbers, plain, restore
from ._lock import Lock
from ._run import FORMAT, Run
from ._tail import BACK_TO

_LETTERS = string.ascii_lowercase + string.digits


class RunWriter(Run):
    """A run folder held for writing, by `Run.create` or `Run.reopen`, until `end` or the end of a `with`
    block.

    In a `with` block an exception ends the run as failed, Ctrl-C as stopped, anything else as finished.
    """

    def __init__(self, folder: Path, lock: Lock):
        super().__init__(folder)
        self._lock: Lock | None = lock
        self._metrics = LineWriter(folder / "metrics.jsonl")
        self._inbox = Inbox(folder / "control")
        self.checkpoints = folder / "checkpoints"

    def log(self, *records: Mapping[str, Any]) -> None:
        """Appends metrics, a record a step: numbers by name, among them `step`.

        `time` is added where it is missing. Each call is one write to the kernel: many records given
        together are cheaper than one by one.
        """
        self._must_be_held()
        now = round(time.time(), 3)
        lines = []
        for record in records:
            if "step" not in record:
                raise JournalError(f"a metrics record needs a 'step', but one has only {', '.join(record)}")
            lines.append(encode_numbers(record if "time" in record else {**record, "time": now}))
        with writing_to(self.folder):
            self._metrics.write(lines)

    def log_columns(self, columns: Mapping[str, Any]) -> None:
        """The same as `log` for many steps at once: a list or an array of numbers for each name, among them `step`."""
        self._must_be_held()
        if "step" not in columns:
            raise JournalError(f"metrics need a column 'step', but there are only {', '.join(columns)}")
        with writing_to(self.folder):
            self._metrics.write(encode_columns(columns, time=round(time.time(), 3)))

    def back_to(self, step: int) -> None:
        """The run goes on from an earlier step: what was logged of that step and later is no part of it any more.

        The lines stay in the file, where anybody can look at them; `columns()` leaves them out.
        """
        self._must_be_held()
        with writing_to(self.folder):
            self._metrics.write([encode({BACK_TO: step, "time": round(time.time(), 3)})])

    def event(self, event: str, /, say: str | None = None, **fields: Any) -> None:
        """Appends an event for programs and, if `say` is given, a line of journal.md for people."""
        self._must_be_held()
        self._tell(event, say, fields)

    def poll(self) -> list[Command]:
        """The commands that arrived since the last call, in the order posted, each to be answered by
        `applied` or `refused`. What is no command is refused here. Costs about 2 µs when nothing waits.
        """
        arrived = self._inbox.poll()
        if not arrived:
            return []
        for wrong in arrived:
            if isinstance(wrong, Malformed):
                say = f"refused the file {wrong.file} in control/: {wrong.reason}"
                self.event("refused", say, file=wrong.file, reason=wrong.reason)
                self._inbox.drop(wrong)
        return [command for command in arrived if isinstance(command, Command)]

    def applied(self, command: Command, outcome: str = "", **fields: Any) -> None:
        """Answers a command that was carried out; `outcome` says what changed."""
        told = {"id": command.id, "command": command.name, "arguments": command.arguments, "outcome": outcome}
        told |= fields
        self.event("applied", f"`{command}` applied" + (f": {outcome}" if outcome else ""), **told)
        self._inbox.drop(command)

    def refused(self, command: Command, reason: str) -> None:
        """Answers a command that cannot be carried out."""
        told = {"id": command.id, "command": command.name, "arguments": command.arguments, "reason": reason}
        self.event("refused", f"`{command}` refused: {reason}", **told)
        self._inbox.drop(command)

    def reconfigure(self, config: Any) -> None:
        """Writes another config into config.json, for a run that is resumed with changes."""
        self._must_be_held()
        self.config = restore(plain(config))
        with writing_to(self.folder):
            replace_file(self.folder / "config.json", encode({**self._about(), "config": self.config}) + "\n")

    def save_laps(self, laps: Any) -> None:
        """Writes laps.json anew."""
        self._must_be_held()
        with writing_to(self.folder):
            replace_file(self.folder / "laps.json", encode(laps) + "\n")

    def add_picture(self, picture: Path | bytes, name: str, caption: str) -> Path:
        """Puts a picture (a file, or its content) into pictures/ under `name` and shows it in journal.md."""
        self._must_be_held()
        path = inside(self.folder / "pictures", name)
        content = picture if isinstance(picture, bytes) else picture.read_bytes()
        with writing_to(self.folder):
            path.parent.mkdir(exist_ok=True)
            replace_file(path, content)
        say = f"{caption}\n\n![{caption}](pictures/{name})\n"
        self.event("picture", say, file=f"pictures/{name}", caption=caption)
        return path

    def end(self, state: Literal["finished", "failed", "stopped"], outcome: str, **fields: Any) -> None:
        """Says how the run ended and lets go of the folder. It can still be read, and be reopened."""
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
            raise JournalError(f"the run {self.name} has ended; {again} goes on with it")
        return self._lock


def create(
    experiment: str, config: Any, runs_dir: Path, device: str | None, name: str | None = None
) -> RunWriter:
    """The folder appears under its name only when everything is in it, so no reader sees half a run."""
    now = time.time()
    settings = restore(plain(config if config is not None else {}))
    about = {"format": FORMAT, "experiment": experiment, "created": now, "config": settings}
    where = environment(device)
    with writing_to(runs_dir):
        runs_dir.mkdir(parents=True, exist_ok=True)
        folder, draft = _taken(name, runs_dir) if name else _free_name(experiment, runs_dir, now)
        try:
            lock = Lock(draft)
            for name in ("control", "checkpoints"):
                (draft / name).mkdir()
            replace_file(draft / "environment.json", encode(where) + "\n")
            append_text(draft / "journal.md", _story.opening(folder.name, settings, where, now))
            replace_file(draft / "config.json", encode(about) + "\n")
            draft.rename(folder)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        run = RunWriter(folder, lock)
    run.event("started", "started", experiment=experiment)
    return run


def reopen(folder: Path, device: str | None) -> RunWriter:
    """What waits in the inbox was meant for a moment that has passed, so it is refused."""
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
    """A name nobody has, and an exclusive hidden folder to prepare it in.

    The exclusive `mkdir` comes first: whoever has the hidden folder is alone in looking at and taking the
    name.
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


def _taken(name: str, runs_dir: Path) -> tuple[Path, Path]:
    """A name that was chosen, which must be free. Should two choose it at once, renaming fails for the second."""
    if name.startswith(".") or Path(name).name != name:
        raise JournalError(
            f"a run's name should be one word without slashes or a dot before it, not {name!r}"
        )
    folder, draft = runs_dir / name, runs_dir / f".{name}-{_four_letters()}"
    if folder.exists():
        raise JournalError(f"there is a run {name!r} in {runs_dir} already; Run.reopen goes on with it")
    draft.mkdir()
    return folder, draft


def _four_letters() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(4))
