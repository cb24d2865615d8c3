"""What a run keeps of the file it was trained from: a copy in source/, and in source.json its path and hash.

A run is resumed from the file at its path. The copy is for people, and to see what has changed; it is executed only if
somebody names it (`lapwing resume RUN --source PATH`).
"""

import os
from pathlib import Path

from lapwing.core import UnreadableError, read_regular
from lapwing.journal import JournalError, Run, RunWriter, to_json

from ._find import Experiment, is_file, known, split
from ._source import ExperimentError, Source

_MOST_BYTES = 1 << 24

FOLDER = "source"


def keep_source(run: RunWriter, experiment: Experiment) -> None:
    """Puts the file of an experiment into the folder of a run. A copy of another content stays beside the new one.

    >>> import tempfile
    >>> from lapwing.experiments import find
    >>> file = Path(tempfile.mkdtemp()) / "net.py"
    >>> _ = file.write_text("def build(config): ...")
    >>> with Run.create("net", runs_dir=file.parent / "runs") as run:
    ...     keep_source(run, find(str(file)))
    >>> (run.folder / FOLDER / "net.py").read_text()
    'def build(config): ...'
    """
    source, before = experiment.source, run.source or {}
    if source is None or (before.get("sha256"), before.get("target")) == (source.sha256, experiment.target):
        return
    path, target = str(source.path), experiment.target
    if _is_inside(source.path, run.folder):  # A copy that was named once is not taken the next time.
        path, target = before.get("path", path), before.get("target", target)
    copy = f"{FOLDER}/{Path(path).name}"
    if before and before.get("sha256") != source.sha256:
        old = _copy(run)
        if old:
            run.put(f"{FOLDER}/{old.path.stem}-{old.sha256[:8]}{old.path.suffix}", old.content)
        run.event("source changed", f"{Path(path).name} has changed: sha256 {source.sha256}", before=before)
    run.put(copy, source.content)
    content = {"target": target, "path": path, "sha256": source.sha256, "copy": copy}
    run.put("source.json", to_json(content) + "\n")


def read_source(run: Run, named: str | None = None) -> tuple[str, Source | None]:
    """What `find` takes for a run, and the file of it as it is now; None for an experiment of Lapwing's own.

    **Arguments:** `named` is a file, or FILE.py:NAME, to take instead of the one at the recorded path.

    >>> import tempfile
    >>> with Run.create("adding", runs_dir=tempfile.mkdtemp()) as run:
    ...     run.log(step=1, loss=0.5)
    >>> read_source(run)
    ('adding', None)
    """
    recorded = run.source
    target = str(recorded.get("target") if recorded else run.experiment)
    where, attribute = split(target)
    if named is not None:
        file, other = split(named)
        if not is_file(file):
            raise ExperimentError(f"--source takes a file that ends in .py, not {named!r}")
        source = Source.read(file)
        attribute = other or (attribute if is_file(where) else "")
        return f"{source.path}:{attribute}" if attribute else str(source.path), source
    path = str(recorded.get("path", "")) if recorded else where if is_file(where) else ""
    if not path:
        if ":" not in target and target not in known():
            raise ExperimentError(
                f"{run.name} is a run of {target!r}, which is not an experiment; a script with a loop of its own "
                "continues it, by Run.reopen, and for a file with build(config) write --source FILE"
            )
        return target, None
    if not os.path.isfile(path):
        copy = os.path.relpath(run.folder / str((recorded or {}).get("copy", "")))
        kept = (
            f"; to use the copy in the run: --source {copy}"
            if os.path.isfile(copy)
            else "; name it: --source FILE"
        )
        raise ExperimentError(f"the file {path} of {run.name} is not there any more{kept}")
    return target, Source.read(path)


def changed_source(run: Run, now: Source | None) -> str:
    """A diff from the file that a run was trained from to what it is now; empty if it is the same.

    >>> import tempfile
    >>> from lapwing.experiments import find
    >>> file = Path(tempfile.mkdtemp()) / "net.py"
    >>> _ = file.write_text("def build(config): ...\\nwidth = 8\\n")
    >>> with Run.create("net", runs_dir=file.parent / "runs") as run:
    ...     keep_source(run, find(str(file)))
    >>> _ = file.write_text("def build(config): ...\\nwidth = 9\\n")
    >>> print(changed_source(run, Source.read(file)))
    --- before
    +++ now
    @@ -1,2 +1,2 @@
     def build(config): ...
    -width = 8
    +width = 9
    """
    recorded = run.source
    if now is None or not recorded or recorded.get("sha256") == now.sha256:
        return ""
    before = _copy(run)
    return (before.diff(now) if before else "") or f"sha256 {recorded.get('sha256')} → {now.sha256}"


def _copy(run: Run) -> Source | None:
    try:
        path = run.file(str((run.source or {})["copy"]))
        return Source(path, read_regular(path, _MOST_BYTES, within=run.folder))
    except (JournalError, KeyError, OSError, UnreadableError):
        return None


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())
