"""From what a person types to a run folder.

A name from outside is only ever compared with the names that are in the runs folder, never joined to a
path, so no spelling of it (dots, encoded dots, a link in the runs folder) leads out of there. What has a
slash in it is an explicit path: it is taken as it is, and has to exist and be a run.
"""

import difflib
import os
from pathlib import Path

from ._errors import JournalError

# A folder is a run when it has this file; `Run.create` renames a folder into place only when all is in it.
_MARK = "config.json"


def is_run(folder: Path) -> bool:
    return (folder / _MARK).is_file()


def run_folders(runs_dir: str | os.PathLike[str] = "runs") -> list[Path]:
    """The run folders of a runs folder, newest first. Links are left out: they could lead anywhere.

    >>> run_folders("there is no such folder")
    []
    """
    try:
        with os.scandir(runs_dir) as entries:
            folders = [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False) and e.name[0] != "."]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(f"cannot read the runs folder {runs_dir}: {error.strerror}") from error
    return sorted((folder for folder in folders if is_run(folder)), key=_age, reverse=True)


def find_run(wanted: str, runs_dir: str | os.PathLike[str] = "runs", *, paths: bool = True) -> Path:
    """The folder of a run, given as a name, an unambiguous beginning of one, `latest`, or a path.

    A server, which gets names from anywhere, says `paths=False`.

    >>> find_run("../../x")
    Traceback (most recent call last):
    lapwing.journal._errors.JournalError: there is no run folder at '../../x'; ...
    """
    if paths and (os.sep in wanted or wanted in (".", "..")):
        return _at_path(wanted)
    folders = run_folders(runs_dir)
    if wanted == "latest" and folders:
        return folders[0]
    exact = [folder for folder in folders if folder.name == wanted]
    matches = exact or [folder for folder in folders if wanted and folder.name.startswith(wanted)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise JournalError(f"{wanted!r} could be {_listed(matches)}; write more of the name")
    if paths and wanted and "\0" not in wanted and is_run(Path(wanted)):
        return Path(wanted)
    place = os.fspath(runs_dir)
    raise JournalError(f"there is no run {wanted!r} in {place!r}; {_suggestion(wanted, folders)}")


def inside(folder: Path, name: str) -> Path:
    """The file `name` of a folder, or an error when the name leads out of it, by dots or by links.

    >>> inside(Path("runs/a"), "pictures/loss.png").as_posix()
    'runs/a/pictures/loss.png'
    """
    path = folder / name
    if "\0" in name or not path.resolve().is_relative_to(folder.resolve()):
        raise JournalError(f"{name!r} is not inside the run {folder.name}; name a file of the run folder")
    return path


def _age(folder: Path) -> tuple[str, int]:
    """Names begin with the second of creation; among runs of one second the file's time decides."""
    return folder.name[: len("20261115-073000")], (folder / _MARK).stat().st_mtime_ns


def _at_path(wanted: str) -> Path:
    folder = Path(wanted).expanduser()
    if "\0" in wanted or not folder.exists():
        raise JournalError(f"there is no run folder at {wanted!r}; `lapwing runs` lists the names of runs")
    if not is_run(folder):
        raise JournalError(f"{wanted!r} is not a run folder: it has no {_MARK}")
    return folder


def _listed(folders: list[Path], most: int = 10) -> str:
    names = [folder.name for folder in folders[:most]]
    if len(folders) > most:
        names.append(f"{len(folders) - most} more")
    return ", ".join(names[:-1]) + " or " + names[-1]


def _suggestion(wanted: str, folders: list[Path]) -> str:
    if not folders:
        return "there are no runs there yet; `lapwing list` shows what can be trained"
    close = difflib.get_close_matches(wanted, [folder.name for folder in folders], n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else "`lapwing runs` lists them"
