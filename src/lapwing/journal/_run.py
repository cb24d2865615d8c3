"""A run as a reader sees it: everything in its folder, whether it is running, finished or lost.

Reading never disturbs the writer. Four things can be done to a run that another process writes: read it, add a note,
post a command, and put a file into its folder that was made from it (a report).
"""

import os
import re
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lapwing.core import replace_file

from . import _story
from ._append import append_line, append_text
from ._best import Best, best_of, wanted
from ._border import check_folder, fitting_events, fitting_rows, read_header, read_json, read_text
from ._checkpoint import Checkpoint
from ._commands import Argument, check_command, find_command
from ._errors import JournalError, writing_to
from ._find import inside, is_run
from ._fold import State, control_arguments_of, controls_of, state_of, tags_of
from ._inbox import Inbox
from ._json import encode
from ._legacy import FORMAT, modern_event, modern_metrics, modern_settings
from ._lock import is_held, read_owner
from ._logged import still_part
from ._params import Which, arrays_of, choose_checkpoint, nested
from ._recordable import recordable
from ._tail import Columns, Record, Tail

if TYPE_CHECKING:
    from array import array

    import numpy as np

    from ._writer import RunWriter

# Whether a process on another host is alive cannot be checked. It counts as lost after this long without a line.
_SILENCE_S = 600.0
_TAG = re.compile(r"[\w.:+=-]{1,50}")


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
        check_folder(folder)
        header = read_header(folder)
        self.experiment: str = header["experiment"] or "?"
        self.created = float(header["created"])
        self.config: dict[str, Any] = header["config"]
        self.unreadable: dict[str, str] = {}
        """The files that were asked for and cannot be read, with the reason."""
        self._is_old = header["format"] < FORMAT
        if self._is_old:
            self.config = modern_settings(self.config)
        self._columns = Columns(self.follow("metrics"))
        self.damaged_metrics = 0
        """The number of unreadable lines that `best()` has found."""
        self._event_tail = self.follow("events")
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
        """Makes the folder of a new run, named by time and experiment by default, and locks it for writing."""
        from ._create import create

        return create(experiment, config, Path(runs_dir), device, name)

    @staticmethod
    def reopen(path: str | os.PathLike[str], *, device: str | None = None) -> "RunWriter":
        """Opens a run that has ended or was lost for writing; an error if another process still writes it."""
        from ._create import reopen

        return reopen(Run.open(path).folder, device)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def state(self) -> State:
        """The state of the run; `lost` means that its process ended without an event.

        The lock is read before the events, so a run that ends in between is never reported as lost.
        """
        alive = is_held(self.folder) or self._probably_alive_elsewhere()
        state = state_of(self.events())
        if alive:
            return "paused" if state == "paused" else "running"
        return "lost" if state in ("running", "paused") else state

    @property
    def controls(self) -> dict[str, float] | None:
        """What `set` can change in this run, with the present values; None if the run has not announced it.

        >>> import tempfile
        >>> run = Run.create("demo", runs_dir=tempfile.mkdtemp())
        >>> run.announce_controls({"learning_rate": 0.1, "l1": 0.0})
        >>> run.controls
        {'learning_rate': 0.1, 'l1': 0.0}
        """
        return controls_of(self.events())

    @property
    def control_arguments(self) -> dict[str, Argument] | None:
        """What `set` can change in this run, each with its range; None if the run has not announced it."""
        return control_arguments_of(self.events())

    @property
    def tags(self) -> list[str]:
        """The tags that people have given to this run."""
        return tags_of(self.events())

    @property
    def environment(self) -> dict[str, Any]:
        """Host, device, versions and command line with which the run was started, without secrets that an earlier
        version may have recorded."""
        return recordable(self._part("environment.json") or {})

    @property
    def source(self) -> dict[str, Any] | None:
        """The file that the run was trained from: its path, its hash and the copy in this folder; None without one."""
        return self._part("source.json")

    @property
    def laps(self) -> dict[str, Any] | None:
        """Where the time went, or None if the run was not timed."""
        return self._part("laps.json")

    @property
    def story(self) -> str:
        """The text of journal.md."""
        try:
            return read_text(self.folder, "journal.md")
        except JournalError as error:
            self.unreadable["journal.md"] = str(error)
            return ""

    @property
    def happened(self) -> str:
        """The events in journal.md, without its beginning."""
        _, heading, events = self.story.partition(_story.HEADING)
        return (events if heading else self.story).strip()

    @property
    def pictures(self) -> list[Path]:
        return sorted(path for path in (self.folder / "pictures").glob("*") if path.is_file())

    @property
    def damaged(self) -> int:
        """The number of unreadable lines that `columns()`, `best()` and `events()` have skipped so far."""
        return max(self._columns.damaged, self.damaged_metrics) + self._event_tail.damaged

    def file(self, name: str) -> Path:
        """A file of this folder, by a name that is not trusted: an error if it leads out of the folder."""
        return inside(self.folder, name)

    def columns(self) -> "dict[str, np.ndarray]":
        """All metrics: a float64 array for each name, in the order written. A second call reads only new lines.

        A metric of float32 is written with nine digits: `astype(np.float32)` gives exactly the number of the training.

        The arrays are copies, all of one length, with NaN where a line lacks the name. Steps that a rollback undid are
        left out. `time` is in seconds since 1970.
        """
        columns = self.raw_columns()
        import numpy as np  # Here, since a list of runs needs no columns and should not wait for it.

        return {name: np.array(column) for name, column in columns.items()}

    def curve(self, name: str, most: int | None = None) -> "tuple[np.ndarray, np.ndarray]":
        """One metric: the steps at which it was logged, and its values there.

        **Arguments:** `most` is the largest number of points, for a picture; minima and maxima are kept.
        """
        from ._curves import curve_of, thin

        columns = self.columns()
        if not {name, "step"} <= columns.keys():
            there = ", ".join(sorted(columns)) or "none"
            raise JournalError(f"the run {self.name} has no metric {name!r}; there are {there}")
        steps, values = curve_of(columns, name)
        return (steps, values) if most is None else thin(steps, values, most)

    def raw_columns(self) -> "dict[str, array[float]]":
        """The same columns without numpy. They are not copies: do not change them."""
        return self._columns.update()

    def best(self) -> Best | None:
        """The best value of the metric that the config names (`best`, `mode`), by default the lowest loss."""
        return best_of(self, *wanted(self.config))

    def latest(self) -> Record:
        """The newest value of each metric, without reading the whole file."""
        return self.follow("metrics").latest()

    def events(self) -> list[Record]:
        """All events so far, oldest first. A second call reads only new lines."""
        self._events += self._event_tail.read()
        return list(self._events)

    def system(self) -> "dict[str, np.ndarray]":
        """What the run uses of its machine, as columns: `time`, `cpu_percent`, `memory_bytes`, `gpu0_percent` and more.

        A sample is taken every ten seconds, of a long run less often; docs/reading-a-run.md lists the columns.
        """
        from ._system import read_system

        return read_system(self.folder)

    def checkpoint(self, which: Which | int = "best") -> Checkpoint:
        """The best checkpoint, the newest, or that of a step."""
        return choose_checkpoint(self.folder / "checkpoints", which, self.name)

    def params(self, which: Which | int = "best", *, like: Any = None, part: str = "params") -> Any:
        """What a run has learned: nested dicts and lists of numpy arrays, by the paths that the checkpoint stores.

        **Arguments**
        - `which`: "best", "newest", or the step of a checkpoint.
        - `like`: parameters of the same structure, of which a tree like it is made (needs jax).
        - `part`: another part of the state, "ema" or "model", where the run has it.

        **Raises** `CheckpointError` if there is no such checkpoint, or if it differs from `like`.
        """
        arrays = arrays_of(self.checkpoint(which), part)
        # Named, not imported: it needs jax and is in a layer above this one.
        return nested(arrays) if like is None else import_module("lapwing.train").tree_like(arrays, like)

    def model(self, which: Which | int = "best") -> Any:
        """What the experiment makes of the parameters, by its function `model(config, params)`, or of them and the
        state of the model, by `model(config, params, state)`. With `ema` they are the averaged ones."""
        return import_module("lapwing.experiments").load_model(self, which)

    def logged(self, name: str | None = None) -> list[Record]:
        """The texts, images, histograms, tables and figures that were logged, or those of one name, oldest first.

        Each is its event: `step`, `name`, `kind` and the fields of the kind (docs/reading-a-run.md). `file` is a name
        in this folder, for `run.file`. What a rollback undid is left out.
        """
        kept = still_part(self.events())
        return [entry for entry in kept if name is None or entry["name"] == name]

    def follow(self, what: Literal["metrics", "events"] = "metrics") -> Tail:
        """A reader of the growing file from its beginning; each `read()` returns what was added since the last."""
        translate, fitting = {
            "metrics": (modern_metrics, fitting_rows),
            "events": (modern_event, fitting_events),
        }[what]
        return Tail(self.folder / f"{what}.jsonl", translate if self._is_old else None, fitting)

    def note(self, text: str) -> None:
        """Adds a note to the journal, at any time, also while another process writes the run."""
        if not text.strip():
            raise JournalError("the note is empty; write a text")
        self._record("note", f"note: {text.strip()}", {"text": text.strip()})

    def tag(self, *tags: str, remove: bool = False) -> None:
        """Adds tags to the run, or removes them, at any time, also while another process writes the run.

        >>> import tempfile
        >>> with Run.create("demo", runs_dir=tempfile.mkdtemp()) as run:
        ...     run.tag("best", "paper")
        >>> run.tags
        ['best', 'paper']
        """
        for tag in tags:
            if not _TAG.fullmatch(tag):
                raise JournalError(f"a tag is one word of letters, digits and any of _.:+=-, but not {tag!r}")
        there = self.tags
        changed = [tag for tag in dict.fromkeys(tags) if (tag in there) == remove]
        if remove and (missing := [tag for tag in tags if tag not in there]):
            raise JournalError(f"{self.name} has no tag {missing[0]!r}; it has {', '.join(there) or 'none'}")
        if changed:
            say = f"{'no longer tagged' if remove else 'tagged'} {', '.join(changed)}"
            self._record("tagged", say, {"remove" if remove else "add": changed})

    def put(self, name: str, content: str | bytes) -> Path:
        """Writes a file that was made from this run (a picture, a report) into its folder, replacing one of that name.
        This works at any time, also while another process writes the run.
        """
        path = inside(self.folder, name)
        with writing_to(self.folder):
            path.parent.mkdir(exist_ok=True)
            replace_file(path, content)
        return path

    def post(self, command: str, /, **arguments: Any) -> str:
        """Sends a command of the table `COMMANDS` to the running run; returns its id, for `answer(id)`.

        **Raises:** `CommandError` if there is no such command, or if a value is not in its range.
        """
        name, checked = check_command(command, arguments, self.control_arguments)
        if (state := self.state) not in ("running", "paused"):
            raise JournalError(f"the run {self.name} is {state}, and only a running one takes commands")
        with writing_to(self.folder):
            return Inbox(self.folder / "control").post(name, checked)

    def send(self, command: str, arguments: Mapping[str, Any]) -> str | None:
        """The same for any command of the table: one that needs no process, such as `note`, is done here (None)."""
        name, spec = find_command(command)
        if spec.states is not None:
            return self.post(name, **arguments)
        getattr(self, name)(**check_command(name, arguments)[1])
        return None

    def answer(self, command_id: str, timeout_s: float = 0.0) -> Record | None:
        """The event that answers a command, `applied` or `refused`; None if there is none within `timeout_s`."""
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
        """For notebooks: a card with the state and a curve of the loss."""
        from ._card import card

        return card(self)

    def _record(self, event: str, say: str | None, fields: Mapping[str, Any]) -> None:
        now = time.time()
        with writing_to(self.folder):
            append_line(self.folder / "events.jsonl", encode({"event": event, "time": now, **fields}))
            if say is not None:
                append_text(self.folder / "journal.md", _story.entry(say, now))

    def read_json(self, name: str) -> Any:
        """The content of a JSON file of this folder; None if there is none. The name need not be trusted."""
        return read_json(self.folder, name)

    def _part(self, name: str) -> dict[str, Any] | None:
        """An object that the run can be understood without; None if it is missing, or `unreadable`."""
        try:
            found = self.read_json(name)
            if found is None or isinstance(found, dict):
                return found
            self.unreadable[name] = f"cannot read {self.folder / name}: it should be an object"
        except JournalError as error:
            self.unreadable[name] = str(error)
        return None

    def _probably_alive_elsewhere(self) -> bool:
        owner = read_owner(self.folder)
        if owner is None or not owner.is_elsewhere:
            return False
        files = [self.folder / name for name in ("metrics.jsonl", "events.jsonl", "lock")]
        newest = max((file.stat().st_mtime for file in files if file.exists()), default=0.0)
        return time.time() - newest < _SILENCE_S
