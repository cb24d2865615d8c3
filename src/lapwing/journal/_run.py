"""A run as a reader sees it: everything in its folder, whether it is running, finished or lost.

Reading never needs the writer's consent and never disturbs it. Four things may be done to somebody else's
run: read it, leave a note in it, post a command to it, and put beside it what was made of it (a report).
"""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lapwing.core import replace_file

from . import _story
from ._append import append_line, append_text
from ._errors import JournalError, reading, writing_to
from ._find import inside, is_run
from ._inbox import Inbox
from ._json import encode, restore
from ._lock import is_held, read_owner
from ._tail import Columns, Record, Tail, latest

if TYPE_CHECKING:
    import numpy as np

    from ._writer import RunWriter

FORMAT = 1
State = Literal["running", "paused", "finished", "failed", "stopped", "lost"]
_STATE_AFTER: dict[str, State] = {
    "started": "running",
    "restarted": "running",
    "paused": "paused",
    "went on": "running",
    "finished": "finished",
    "failed": "failed",
    "stopped": "stopped",
}
# Later than any run, and early enough for every calendar.
_FAR_FUTURE = 1e11
# A writer on another host cannot be asked whether it lives. It counts as lost after this long without a line.
_SILENCE_S = 600.0


class Run:
    """A run folder, opened for reading.

    >>> import tempfile
    >>> with Run.create("demo", {"learning_rate": 0.1}, runs_dir=tempfile.mkdtemp()) as writer:
    ...     writer.log({"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25})
    >>> run = Run.open(writer.folder)
    >>> run.experiment, run.config, run.state
    ('demo', {'learning_rate': 0.1}, 'finished')
    >>> run.columns()["loss"]
    array([0.5 , 0.25])
    """

    def __init__(self, folder: Path):
        self.folder = folder
        about = self._about()
        self.experiment = str(about.get("experiment", "?"))
        self.created = float(about["created"])
        self.config: dict[str, Any] = about.get("config", {})
        self._columns = Columns(folder / "metrics.jsonl")
        self._event_tail = Tail(folder / "events.jsonl")
        self._events: list[Record] = []

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Run":
        """Opens an existing run folder for reading."""
        folder = Path(path)
        if not is_run(folder):
            raise JournalError(f"{os.fspath(path)!r} is not a run folder: it has no config.json")
        return cls(folder)

    @staticmethod
    def create(
        experiment: str,
        config: Any = None,
        *,
        runs_dir: str | os.PathLike[str] = "runs",
        device: str | None = None,
        name: str | None = None,
    ) -> "RunWriter":
        """Makes the folder of a new run, named by time and experiment unless it is given a name, and holds it for
        writing.
        """
        from ._writer import create

        return create(experiment, config, Path(runs_dir), device, name)

    @staticmethod
    def reopen(path: str | os.PathLike[str], *, device: str | None = None) -> "RunWriter":
        """Goes on writing a run that has ended or was lost. An error says so if somebody else still writes
        it.
        """
        from ._writer import reopen

        return reopen(Run.open(path).folder, device)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def state(self) -> State:
        """What has become of the run; `lost` means that its process ended without a word.

        The lock is looked at before the events, so a run that ends in between is never called lost.
        """
        alive = is_held(self.folder) or self._probably_alive_elsewhere()
        told = "running"
        for event in self.events():
            told = _STATE_AFTER.get(str(event.get("event")), told)
        if alive:
            return "paused" if told == "paused" else "running"
        return "lost" if told in ("running", "paused") else told

    @property
    def environment(self) -> dict[str, Any]:
        """Where and with what the run was started."""
        told = self._json("environment.json")
        return told if isinstance(told, dict) else {}

    @property
    def laps(self) -> Any:
        """Where its time went, or None if it was not timed."""
        return self._json("laps.json")

    @property
    def story(self) -> str:
        """The text of journal.md."""
        path = self.folder / "journal.md"
        with reading(path):
            try:
                return path.read_text(encoding="utf-8", errors="replace")
            except FileNotFoundError:
                return ""

    @property
    def pictures(self) -> list[Path]:
        return sorted(path for path in (self.folder / "pictures").glob("*") if path.is_file())

    @property
    def damaged(self) -> int:
        """How many unreadable lines `columns()` and `events()` have skipped so far."""
        return self._columns.damaged + self._event_tail.damaged

    def file(self, name: str) -> Path:
        """A file of this folder, by a name that may come from outside: it cannot lead out of the folder."""
        return inside(self.folder, name)

    def columns(self) -> "dict[str, np.ndarray]":
        """All metrics: a float64 array for each name, in the order written. A second call reads only what
        is new.

        The arrays are the caller's own, all of one length, with NaN where a line lacks the name. Where the run
        went back to an earlier step, only what became of it is there. `time` is in seconds since 1970.
        """
        columns = self._columns.update()
        import numpy as np  # Here, so that a list of runs, which needs no columns, does not wait for it.

        return {name: np.array(column) for name, column in columns.items()}

    def curve(self, name: str, most: int | None = None) -> "tuple[np.ndarray, np.ndarray]":
        """One metric: the steps at which it was logged, and its values there.

        With `most`, at most so many points of it, for a picture; lowest and highest values are among them.
        """
        from ._curves import curve_of, thin

        columns = self.columns()
        if not {name, "step"} <= columns.keys():
            there = ", ".join(sorted(columns)) or "none"
            raise JournalError(f"the run {self.name} has no metric {name!r}; there are {there}")
        steps, values = curve_of(columns, name)
        return (steps, values) if most is None else thin(steps, values, most)

    def latest(self) -> Record:
        """The newest value of each metric, without reading the whole file."""
        return latest(self.folder / "metrics.jsonl")

    def events(self) -> list[Record]:
        """All events so far, oldest first. A second call reads only what is new."""
        self._events += self._event_tail.read()
        return list(self._events)

    def follow(self, what: Literal["metrics", "events"] = "metrics") -> Tail:
        """A reader of the growing file from its beginning; each `read()` gives what is new since the last."""
        return Tail(self.folder / f"{what}.jsonl")

    def note(self, text: str) -> None:
        """Adds a person's note to the journal. This works at any time, also while another process writes
        the run.
        """
        if not text.strip():
            raise JournalError("the note is empty; write what should be remembered")
        self._tell("note", f"note: {text.strip()}", {"text": text.strip()})

    def put(self, name: str, content: str | bytes) -> Path:
        """Puts a file that was made of this run (a picture, a report) into its folder, in place of the last one
        of that name. This works at any time, also while another process writes the run.
        """
        path = inside(self.folder, name)
        with writing_to(self.folder):
            path.parent.mkdir(exist_ok=True)
            replace_file(path, content)
        return path

    def post(self, command: str, **arguments: Any) -> str:
        """Sends a command to the running run and returns its id; `answer(id)` says what became of it."""
        if (state := self.state) not in ("running", "paused"):
            raise JournalError(f"the run {self.name} is {state}, and only a running one takes commands")
        with writing_to(self.folder):
            return Inbox(self.folder / "control").post(command, arguments)

    def answer(self, command_id: str, timeout_s: float = 0.0) -> Record | None:
        """The event that answers a command, `applied` or `refused`; None if there is none within the time
        given.
        """
        deadline = time.monotonic() + timeout_s
        tail = self.follow("events")
        while True:
            for event in tail.read():
                if event.get("id") == command_id and event.get("event") in ("applied", "refused"):
                    return event
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.02)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    def _repr_html_(self) -> str:
        """What a notebook shows: a card with the state and a curve of the loss."""
        from ._card import card

        return card(self)

    def _tell(self, event: str, say: str | None, fields: Mapping[str, Any]) -> None:
        now = time.time()
        with writing_to(self.folder):
            append_line(self.folder / "events.jsonl", encode({"event": event, "time": now, **fields}))
            if say is not None:
                append_text(self.folder / "journal.md", _story.entry(say, now))

    def _about(self) -> dict[str, Any]:
        """What config.json says, if it is one of ours: many programs have a file of that name."""
        path, about = self.folder / "config.json", self._json("config.json")
        told = about if isinstance(about, dict) else {}
        format_, created = told.get("format"), told.get("created")
        if not isinstance(format_, int):
            raise JournalError(f"{path} is not of a run: Lapwing writes a number 'format' into it")
        if format_ > FORMAT:
            raise JournalError(f"the run {self.name} was written by a newer Lapwing; update this one")
        if not isinstance(created, int | float) or not 0 <= created < _FAR_FUTURE:
            raise JournalError(
                f"{path} is damaged: 'created' should be seconds since 1970, but is {created!r}"
            )
        return told

    def _json(self, name: str) -> Any:
        path = self.folder / name
        with reading(path):
            try:
                return restore(json.loads(path.read_bytes()))
            except FileNotFoundError:
                return None
            except (ValueError, RecursionError) as error:
                raise JournalError(f"cannot read {path}: {error}") from error

    def _probably_alive_elsewhere(self) -> bool:
        owner = read_owner(self.folder)
        if owner is None or not owner.is_elsewhere:
            return False
        files = [self.folder / name for name in ("metrics.jsonl", "events.jsonl", "lock")]
        newest = max((file.stat().st_mtime for file in files if file.exists()), default=0.0)
        return time.time() - newest < _SILENCE_S
