"""One checkpoint as one safetensors file: `000012-step-340.safetensors`.

The format is documented and small (a length, a JSON header, the bytes of the arrays) and every framework reads it, so
the standard library and numpy are enough. Lapwing's own part is in the header's `__metadata__`: "lapwing" has the step,
the record of the loop and the checksums of the arrays, and "sha256" is the checksum of everything after it in the
header. So listing checkpoints reads headers alone, and damage is found before the numbers are used.

An array is named by its path in the state of a run ("params/w/0"). A process killed at any moment leaves a complete
checkpoint or a hidden draft.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lapwing.core import LapwingError, replace_file, sync_folder

from ._json import decode, encode
from ._safetensors import layout_of, padded

if TYPE_CHECKING:
    import numpy as np

SCHEMA = 2  # Schema 1 is a folder written by Orbax, of version 0.1.
SUFFIX = ".safetensors"
"""How the name of a checkpoint ends."""
_START = b'{"__metadata__": {"sha256": "'
_NAME = re.compile(
    r"\.?(\d+)-step-\d+(\.safetensors(\.\d+)?)?"
)  # A draft has a dot and the id of its process.
_DIGITS = 64
_MOST_HEADER_BYTES = 100_000_000  # The limit of the safetensors library.
_SPARE_BYTES = 1 << 16  # Room on the disk for the journal's next lines.
# What comes of reading a header that Lapwing did not write.
NOT_OURS = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""The exceptions that a file can cause which Lapwing did not write."""


class CheckpointError(LapwingError, ValueError):
    """What is wrong with a checkpoint, and what to do about it."""


class DamagedCheckpointError(CheckpointError):
    """The file is not what was written."""

    def __init__(self, path: Path, what: str):
        super().__init__(f"the checkpoint {path} is damaged: {what}")


class Leaf(NamedTuple):
    """A leaf on disk.

    >>> Leaf("float32", (3, 2)).shape
    (3, 2)
    """

    dtype: str
    shape: tuple[int, ...]
    sha256: str = ""


@dataclass(frozen=True)
class Checkpoint:
    """A state on disk: its step, what the loop stores with it, and its leaves by path.

    >>> import tempfile
    >>> import numpy as np
    >>> checkpoint = Checkpoint(340, Path(tempfile.mkdtemp()) / "000002-step-340.safetensors", {"loss": 0.5})
    >>> write_checkpoint(checkpoint, {"params/w": np.ones(3)})
    >>> found = read_checkpoint(checkpoint.path)
    >>> found.serial, found.step, found.record, list(found.leaves)
    (2, 340, {'loss': 0.5}, ['params/w'])
    """

    step: int
    path: Path
    record: Mapping[str, Any]
    leaves: Mapping[str, Leaf] = field(default_factory=dict, repr=False)

    @property
    def serial(self) -> int:
        """Checkpoints are numbered in the order in which they are written."""
        return serial_of(self.path) or 0


def serial_of(path: Path) -> int | None:
    """The serial in the name of a checkpoint or of a draft; None for any other name.

    >>> serial_of(Path("000012-step-340.safetensors")), serial_of(Path("notes.txt"))
    (12, None)
    """
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def checkpoint_files(folder: Path, *, drafts: bool = False) -> list[Path]:
    """The checkpoints in a folder, or the hidden drafts, by serial.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("000010-step-200.safetensors", "000002-step-100.safetensors", "notes.txt"):
    ...     (folder / name).touch()
    >>> [path.name for path in checkpoint_files(folder)]
    ['000002-step-100.safetensors', '000010-step-200.safetensors']
    """
    try:
        found = [path for path in folder.iterdir() if path.name.startswith(".") == drafts]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"cannot read {folder}: {error.strerror}") from error
    serials = {path: serial for path in found if (serial := serial_of(path)) is not None}
    return sorted(serials, key=serials.__getitem__)


def write_checkpoint(checkpoint: Checkpoint, arrays: "Mapping[str, np.ndarray]") -> None:
    """Writes a checkpoint with the arrays of its state by path, completely or not at all. Its folder is made if it is
    missing, but not the one around it: that of a run, which somebody has deleted.

    >>> import tempfile
    >>> import numpy as np
    >>> path = Path(tempfile.mkdtemp()) / "000001-step-10.safetensors"
    >>> write_checkpoint(Checkpoint(10, path, {}), {"params/w": np.ones(3)})
    >>> read_checkpoint(path).step
    10
    """
    tensors, contents = layout_of(arrays)
    leaves = {
        name: Leaf(str(arrays[name].dtype), arrays[name].shape, _sha256(contents[name])) for name in tensors
    }
    about = {"schema": SCHEMA, "step": checkpoint.step, "record": checkpoint.record, "arrays": leaves}
    header = {"__metadata__": {"sha256": "", "lapwing": encode(about)}, **tensors}
    rest = padded(json.dumps(header).encode())[len(_START) :]
    start = [_START, _sha256(rest).encode(), rest]
    folder = checkpoint.path.parent
    folder.mkdir(exist_ok=True)
    # A disk that is filled to the last byte could not hold the journal either.
    if shutil.disk_usage(folder).free < sum(map(len, [*start, *contents.values()])) + _SPARE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    length = sum(map(len, start)).to_bytes(8, "little")
    replace_file(checkpoint.path, [length, *start, *contents.values()])
    sync_folder(folder)  # The new name has to be on disk before older checkpoints are removed.


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint at a path, without its arrays.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "000001-step-10.safetensors"
    >>> _ = path.write_bytes(b"no checkpoint")
    >>> read_checkpoint(path)
    Traceback (most recent call last):
    lapwing.journal._checkpoint.DamagedCheckpointError: the checkpoint ... is damaged: ...
    """
    with _damage_of(path), open(path, "rb") as file:
        header = file.read(min(int.from_bytes(file.read(8), "little"), _MOST_HEADER_BYTES))
        checksum, rest = header[len(_START) :][:_DIGITS], header[len(_START) + _DIGITS :]
        if not header.startswith(_START) or _sha256(rest).encode() != checksum:
            raise DamagedCheckpointError(path, "its header was changed after it was written")
        about = decode(json.loads(header)["__metadata__"]["lapwing"])
        if about["schema"] != SCHEMA:
            raise CheckpointError(
                f"the checkpoint {path} has schema {about['schema']}, but this version of Lapwing reads schema "
                f"{SCHEMA}; use the version that wrote it"
            )
        leaves = {name: Leaf(*leaf) for name, leaf in about["arrays"].items()}
        return Checkpoint(about["step"], path, about["record"], leaves)


def read_arrays(checkpoint: Checkpoint, under: str = "") -> "dict[str, np.ndarray]":
    """The arrays by path, each compared with its checksum; with `under="params"` those of the parameters alone.

    >>> import tempfile
    >>> import numpy as np
    >>> checkpoint = Checkpoint(10, Path(tempfile.mkdtemp()) / "000001-step-10.safetensors", {})
    >>> write_checkpoint(checkpoint, {"params/w": np.ones(2), "step": np.array(10)})
    >>> read_arrays(read_checkpoint(checkpoint.path), under="params")
    {'params/w': array([1., 1.])}
    """
    import numpy as np

    path, arrays = checkpoint.path, {}
    with _damage_of(path), open(path, "rb") as file:
        file.seek(8 + int.from_bytes(file.read(8), "little"))
        for name, (dtype, shape, checksum) in checkpoint.leaves.items():
            size = math.prod(shape) * _dtype(dtype).itemsize
            if under and name != under and not name.startswith(f"{under}/"):
                file.seek(size, os.SEEK_CUR)
                continue
            content = file.read(size)
            if _sha256(content) != checksum:
                raise DamagedCheckpointError(path, f"{name} was changed after it was written")
            arrays[name] = np.frombuffer(content, _dtype(dtype)).reshape(shape)
        if file.read(1):
            raise DamagedCheckpointError(path, "it is longer than it was written")
    return arrays


def _dtype(name: str) -> "np.dtype":
    """The dtype of a name; those that numpy lacks (bfloat16) come from ml_dtypes, a part of jax.

    >>> _dtype("float32"), _dtype("bfloat16").itemsize
    (dtype('float32'), 2)
    """
    import numpy as np

    try:
        return np.dtype(name)
    except TypeError:
        try:
            import ml_dtypes
        except ImportError:
            raise CheckpointError(f"to read {name}, install ml_dtypes: pip install ml_dtypes") from None
        return np.dtype(getattr(ml_dtypes, name))


def _sha256(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()


@contextlib.contextmanager
def _damage_of(path: Path) -> Iterator[None]:
    """Makes one sentence of whatever goes wrong while a file is read."""
    try:
        if path.exists() and not path.is_file():  # Opening a pipe would block.
            raise DamagedCheckpointError(path, "it is not a file")
        yield
    except CheckpointError:
        raise
    except OSError as error:
        raise DamagedCheckpointError(path, f"it cannot be read ({error.strerror})") from error
    except NOT_OURS as error:
        raise DamagedCheckpointError(path, "its header is not one that Lapwing writes") from error
