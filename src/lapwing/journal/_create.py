"""Making the folder of a new run, and opening one again for writing."""

import re
import secrets
import shutil
import string
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from lapwing.core import replace_file

from . import _story
from ._append import append_text
from ._environment import environment
from ._errors import writing_to
from ._find import check_name, stamp
from ._json import encode, plain, restore
from ._legacy import FORMAT
from ._lock import Lock
from ._recordable import refuse_secrets
from ._run import Run
from ._writer import RunWriter

_LETTERS = string.ascii_lowercase + string.digits


def create(
    experiment: str, config: Any, runs_dir: Path, device: str | None, name: str | None = None
) -> RunWriter:
    """Creates a run. Its folder gets its name when everything is in it, so no reader sees half a run."""
    now = time.time()
    settings = restore(plain(config if config is not None else {}))
    refuse_secrets(settings)
    header = {"format": FORMAT, "experiment": experiment, "created": now, "config": settings}
    surroundings = environment(device)
    with writing_to(runs_dir):
        runs_dir.mkdir(parents=True, exist_ok=True)
        folder, draft = (
            _chosen_name(name, runs_dir) if name is not None else _free_name(experiment, runs_dir, now)
        )
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
        run = RunWriter(folder, lock, is_new=True)
    Run._record(run, "started", "started", {"experiment": experiment})
    # Who names the device has asked JAX for it, if JAX is in use. A run that is refused has no samples.
    run.when_begun(lambda: run.sample_system(counts_jax=device is not None))
    return run


def reopen(folder: Path, device: str | None) -> RunWriter:
    """Opens a run for writing again. Until there is something to record, it stays as it is."""
    with writing_to(folder):
        lock = Lock(folder)
        try:
            run = RunWriter(folder, lock, is_new=False)
        except BaseException:
            lock.release()
            raise
    left = {path.stem for path in (folder / "control").glob("*.json")}
    run.elsewhere = _elsewhere(run.environment, environment(device))
    run.when_begun(lambda: _restart(run, device, left))
    return run


def _elsewhere(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What has changed since a run was started, as far as results may differ by it."""
    changed = _story.changes(before, {**before, **now})  # What was recorded later is not known yet.
    return {
        path: (old, new)
        for path, (old, new) in changed.items()
        if path.startswith(("device", "versions", "variables")) and (path != "device" or new is not None)
    }


def _restart(run: RunWriter, device: str | None, left: Collection[str]) -> None:
    """Commands that were left in the inbox before the run was reopened are out of date, so they are refused."""
    for command in run.poll():
        if command.id in left:
            run.refused(command, "it was posted while the run was not running")
        else:
            run.put_back(command)
    before = run.environment
    changed = _story.changes(before, {**before, **environment(device)})
    differs = "".join(f"\n{path}: {old} → {new}" for path, (old, new) in changed.items())
    run.event("restarted", "**restarted**" + differs, changed=changed)
    run.sample_system(counts_jax=device is not None)


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
    check_name(name, runs_dir)
    folder, draft = runs_dir / name, runs_dir / f".{name}-{_four_letters()}"
    draft.mkdir()
    return folder, draft


def _four_letters() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(4))
