"""One checkpoint as a folder: the arrays, and `checkpoint.json`, which tells what they are and seals them.

The folder is written under a hidden name, brought to the disk and renamed at the end, so that a process killed
at any moment leaves a whole checkpoint or a hidden draft. Disks and people still damage files later: the sizes
and checksums of all files are in `checkpoint.json`, and its own checksum (`seal`) is too, so that damage is
found before anything is made of the numbers. Orbax's own checksums would find some of it, late and in its words.
"""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lapwing.journal import from_json, to_json

from ._checkpoint_arrays import (
    CheckpointError,
    Kind,
    differences,
    kind_of,
    leaves_by_path,
    load,
    on_host,
    store,
)

SCHEMA = 1
_HEAD, _ARRAYS = "checkpoint.json", "arrays"
_NAME = re.compile(r"\.?(\d+)-step-\d+")
_SPARE_BYTES = 1 << 16  # For what is beside the numbers, and for the journal's next lines.


class DamagedCheckpointError(CheckpointError):
    """The files are not what was written."""


@dataclass(frozen=True)
class Checkpoint:
    """A state on disk, and what the loop remembers beside its arrays."""

    step: int
    serial: int
    folder: Path
    record: Mapping[str, Any]


def serial_of(folder: Path) -> int | None:
    """The serial that a folder's name tells, or None if it is no name of a checkpoint."""
    match = _NAME.fullmatch(folder.name)
    return int(match[1]) if match else None


def write(checkpoint: Checkpoint, state: Any) -> None:
    """Writes a checkpoint, whole or not at all."""
    draft = checkpoint.folder.with_name(f".{checkpoint.folder.name}")
    try:
        draft.mkdir(parents=True)
        arrays = on_host(leaves_by_path(state))
        _check_room(draft, sum(array.nbytes for array in arrays.values()))
        store(arrays, draft / _ARRAYS)
        head = {
            "schema": SCHEMA,
            "step": checkpoint.step,
            "serial": checkpoint.serial,
            "record": checkpoint.record,
            "arrays": {name: kind_of(array)._asdict() for name, array in arrays.items()},
            "files": {name: _fingerprint(draft / name) for name in _files(draft)},
        }
        (draft / _HEAD).write_text(to_json(head | {"seal": _seal(head)}) + "\n", encoding="utf-8")
        _sync_all(draft)
        draft.rename(checkpoint.folder)
        _sync(checkpoint.folder.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def remove(folder: Path) -> None:
    """Removes a checkpoint so that at no moment half of it looks like one."""
    draft = folder.with_name(f".{folder.name}")
    folder.rename(draft)
    shutil.rmtree(draft, ignore_errors=True)


def read(folder: Path) -> Checkpoint:
    """The checkpoint in a folder; its arrays are not looked at."""
    head = _read_head(folder)
    return Checkpoint(head["step"], head["serial"], folder, head["record"])


def read_arrays(checkpoint: Checkpoint, like: Any = None) -> dict[str, np.ndarray]:
    """The arrays by path, once every file has been found as it was written, and to be those of `like`, if given."""
    folder = checkpoint.folder
    head = _read_head(folder)
    for name, written in head["files"].items():
        if problem := _damage(folder / name, written):
            raise _damaged(folder, f"its file {name} {problem}")
    kinds = {name: Kind(kind["dtype"], tuple(kind["shape"])) for name, kind in head["arrays"].items()}
    if like is not None and (found := differences(kinds, like)):
        raise CheckpointError(
            f"the checkpoint {folder} is of another state: {'; '.join(found)}; "
            "go on with the task and the optimizer that it was made with"
        )
    return load(folder / _ARRAYS, kinds)


def _read_head(folder: Path) -> dict[str, Any]:
    try:
        head = from_json((folder / _HEAD).read_bytes())
        seal = head.pop("seal")
        sealed = _seal(head)
    except FileNotFoundError:
        raise _damaged(folder, f"it has no {_HEAD}") from None
    except OSError as error:
        raise _damaged(folder, f"its {_HEAD} cannot be read ({error.strerror})") from error
    except (ValueError, AttributeError, KeyError, TypeError):
        raise _damaged(folder, f"its {_HEAD} is not what was written") from None
    if seal != sealed:
        raise _damaged(folder, f"its {_HEAD} was changed after it was written")
    if head["schema"] != SCHEMA:
        raise CheckpointError(
            f"the checkpoint {folder} has schema {head['schema']}, but this version of Lapwing reads schema "
            f"{SCHEMA}; use the version that wrote it"
        )
    if folder.name != name_of(head["serial"], head["step"]):
        raise _damaged(folder, f"it was renamed from {name_of(head['serial'], head['step'])}")
    return head


def name_of(serial: int, step: int) -> str:
    return f"{serial:06d}-step-{step}"


def _seal(head: Mapping[str, Any]) -> str:
    return hashlib.sha256(to_json(head).encode(errors="surrogatepass")).hexdigest()


def _damaged(folder: Path, what: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(f"the checkpoint {folder} is damaged: {what}")


def _damage(file: Path, written: Mapping[str, Any]) -> str | None:
    try:
        found = _fingerprint(file)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if found["bytes"] != written["bytes"]:
        return f"has {found['bytes']} bytes of {written['bytes']}"
    return None if found == written else "was changed after it was written"


def _files(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


def _fingerprint(file: Path) -> dict[str, Any]:
    with open(file, "rb") as opened:
        checksum = hashlib.file_digest(opened, "sha256").hexdigest()
        return {"bytes": opened.tell(), "sha256": checksum}


def _check_room(folder: Path, needed: int) -> None:
    """Before a disk is filled to its last byte, which would leave no room for the journal's lines either."""
    if shutil.disk_usage(folder).free < needed + _SPARE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _sync_all(folder: Path) -> None:
    for inner in folder.rglob("*"):
        _sync(inner)
    _sync(folder)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
