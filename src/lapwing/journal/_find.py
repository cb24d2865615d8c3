"""Finding a run folder by what a person types.

A name is compared with the names in the runs folder and never joined to a path, so no spelling of it (dots, encoded
dots, a link in the runs folder) leads out of there. Anything else with a slash is an explicit path, which has to exist
and be a run.

The runs folder may have folders of runs in it, such as sweeps, at any depth; the name of a run in one is `sweep/run`.
"""

import contextlib
import os
import re
import stat
import time
from collections.abc import Collection
from pathlib import Path

from lapwing.core import closest

from ._errors import JournalError

# A folder with this file is a run. `Run.create` renames a folder to its name only when it is complete.
_MARK = "config.json"
_LATEST = re.compile(r"latest(?:~([0-9]{1,9}))?")
_STAMP = re.compile(r"\d{8}-\d{6}")


def stamp(when: float) -> str:
    """The time with which a run's name begins.

    >>> stamp(0.0)
    '19700101-000000'
    """
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(when))


def is_run(folder: Path) -> bool:
    return _made(folder) is not None


def run_folders(runs_dir: str | os.PathLike[str] = "runs") -> list[Path]:
    """The run folders of a runs folder and of the folders in it, newest first. Links are not followed.

    >>> run_folders("there is no such folder")
    []
    """
    made, waiting = {}, _folders(runs_dir)
    while waiting:
        folder = waiting.pop()
        if when := _made(folder):
            made[folder] = when
        else:
            with contextlib.suppress(JournalError):  # One that cannot be read hides nothing else.
                waiting += _folders(folder)
    return sorted(made, key=lambda folder: made[folder], reverse=True)


def _folders(parent: str | os.PathLike[str]) -> list[Path]:
    try:
        with os.scandir(parent) as entries:
            return [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False) and e.name[0] != "."]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(f"cannot read the runs folder {parent}: {error.strerror}") from error


def run_name(folder: Path, runs_dir: str | os.PathLike[str] = "runs") -> str:
    """The name of a run; a run in a folder of runs has its name in front of its own.

    >>> run_name(Path("runs/mine/seed=1"))
    'mine/seed=1'
    """
    return folder.relative_to(runs_dir).as_posix()


def check_name(name: str, runs_dir: Path) -> None:
    """**Raises** `JournalError` if a new run cannot have this name.

    >>> check_name("wide/net", Path("runs"))
    Traceback (most recent call last):
    lapwing.journal._errors.JournalError: a run's name should be one word without slashes or a leading dot, not ...
    """
    if not name or name.startswith(".") or Path(name).name != name:
        raise JournalError(f"a run's name should be one word without slashes or a leading dot, not {name!r}")
    if (runs_dir / name).exists():
        raise JournalError(
            f"there is a run {name!r} in {runs_dir} already; choose another name, or continue it with `lapwing resume "
            f"{name}` (in Python: Run.reopen)"
        )


def find_run(wanted: str, runs_dir: str | os.PathLike[str] = "runs", *, paths: bool = True) -> Path:
    """The folder of a run, given as a name, an unambiguous beginning or part of one, `latest` (`latest~1` is the one
    before it), or a path.

    **Arguments:** `paths=False` allows names only, for names that are not trusted.

    >>> find_run("../../no-such-run")
    Traceback (most recent call last):
    lapwing.journal._errors.JournalError: there is no run folder at '../../no-such-run'; ...
    """
    folders = run_folders(runs_dir)
    if (recent := _LATEST.fullmatch(wanted)) and int(recent[1] or 0) < len(folders):
        return folders[int(recent[1] or 0)]
    names = {run_name(folder, runs_dir): folder for folder in folders}
    matches = [wanted] if wanted in names else [name for name in names if wanted and name.startswith(wanted)]
    if not matches and paths and wanted and is_run(path := Path(os.path.expanduser(wanted))):
        return path
    matches = matches or [name for name in names if wanted and wanted in name]
    if len(matches) == 1:
        return names[matches[0]]
    if matches:
        raise JournalError(f"{wanted!r} could be {_listed(matches)}; write more of the name")
    if paths and (os.sep in wanted or wanted in (".", "..")):
        raise _no_path(wanted)
    where = os.fspath(runs_dir)
    raise JournalError(f"there is no run {wanted!r} in {where!r}; {_advice(wanted, names)}")


def inside(folder: Path, name: str) -> Path:
    """The file `name` of a folder; an error if the name leads out of it, by dots or by links.

    >>> inside(Path("runs/a"), "pictures/loss.png").as_posix()
    'runs/a/pictures/loss.png'
    """
    path = folder / name
    if "\0" in name or not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise JournalError(f"{name!r} is not inside the run {folder.name}; name a file of the run folder")
    return path


def _made(folder: Path) -> tuple[str, int] | None:
    """When a run was created, for sorting; None if the folder is not a run, or cannot be read.

    Names begin with the second of creation. The time of the file orders runs of one second, and folders that were
    renamed.
    """
    try:
        mark = os.stat(folder / _MARK)
    except (OSError, ValueError):  # A name with a null character is a ValueError.
        return None
    if not stat.S_ISREG(mark.st_mode):
        return None
    named = _STAMP.match(folder.name)
    return named[0] if named else stamp(mark.st_mtime), mark.st_mtime_ns


def _no_path(wanted: str) -> JournalError:
    if not os.path.exists(os.path.expanduser(wanted)):
        return JournalError(f"there is no run folder at {wanted!r}; `lapwing runs` lists the names of runs")
    return JournalError(f"{wanted!r} is not a run folder: it has no {_MARK}")


def _listed(names: list[str], most: int = 10) -> str:
    listed = names[:most]
    if len(names) > most:
        listed.append(f"{len(names) - most} more")
    return ", ".join(listed[:-1]) + " or " + listed[-1]


def _advice(wanted: str, names: Collection[str]) -> str:
    if not names:
        return "there are no runs there yet; `lapwing list` shows what can be trained"
    guess = closest(wanted, names)
    return f"did you mean {guess}?" if guess else "`lapwing runs` lists them"
