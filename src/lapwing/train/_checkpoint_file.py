"""One checkpoint as one safetensors file: `000012-step-340.safetensors`.

The format is documented and small (a length, a JSON header, the bytes of the arrays) and every framework reads it, so
the standard library and numpy are enough to write it. Lapwing's own part is in the header's `__metadata__`: "lapwing"
has the step, the record of the loop and the checksums of the arrays, and "sha256" is the checksum of everything after
it in the header. So listing checkpoints reads headers alone, and damage is found before the numbers are used.

A process killed at any moment leaves a complete checkpoint or a hidden draft.
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
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from lapwing.core import replace_file
from lapwing.journal import from_json, to_json

from ._checkpoint_arrays import CheckpointError, leaves_by_path, to_host

SCHEMA = 2  # Schema 1 is a folder written by Orbax, see _checkpoint_orbax.
SUFFIX = ".safetensors"
_NAME = re.compile(
    r"\.?(\d+)-step-\d+(\.safetensors(\.\d+)?)?"
)  # A draft has a dot and the id of its process.
_START = b'{"__metadata__": {"sha256": "'
_DIGITS = 64
_MOST_HEADER_BYTES = 100_000_000  # The limit of the safetensors library.
_SPARE_BYTES = 1 << 16  # Room on the disk for the journal's next lines.
# What comes of reading a header that Lapwing did not write.
NOT_OURS = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
_DTYPES = {
    f"{name}{bits}": f"{name[0].upper()}{bits}" for name in ("uint", "int") for bits in (8, 16, 32, 64)
}
_DTYPES |= {"float16": "F16", "float32": "F32", "float64": "F64", "bfloat16": "BF16", "complex64": "C64"}
_DTYPES |= {"bool": "BOOL", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}


class DamagedCheckpointError(CheckpointError):
    """The file is not what was written."""

    def __init__(self, path: Path, what: str):
        super().__init__(f"the checkpoint {path} is damaged: {what}")


class Leaf(NamedTuple):
    """A leaf on disk."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str = ""


@dataclass(frozen=True)
class Checkpoint:
    """A state on disk: its step, what the loop stores with it, and its leaves by path."""

    step: int
    path: Path
    record: Mapping[str, Any]
    leaves: Mapping[str, Leaf] = field(default_factory=dict, repr=False)

    @property
    def serial(self) -> int:
        """Checkpoints are numbered in the order in which they are written."""
        return serial_of(self.path) or 0


def serial_of(path: Path) -> int | None:
    """The serial in the name of a checkpoint or of a draft; None for any other name."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def write(checkpoint: Checkpoint, state: Any) -> None:
    """Writes a checkpoint, completely or not at all."""
    arrays = to_host(leaves_by_path(state))
    # Large items first, so that each array starts at a multiple of its item size.
    arrays = dict(sorted(arrays.items(), key=lambda item: -item[1].itemsize))
    contents = {name: array.reshape(-1).view(np.uint8).data for name, array in arrays.items()}
    leaves = {name: Leaf(str(a.dtype), a.shape, _sha256(contents[name])) for name, a in arrays.items()}
    about = {"schema": SCHEMA, "step": checkpoint.step, "record": checkpoint.record, "arrays": leaves}
    header = _header(about, leaves, contents)
    folder = checkpoint.path.parent
    folder.mkdir(parents=True, exist_ok=True)
    # A disk that is filled to the last byte could not hold the journal either.
    if shutil.disk_usage(folder).free < len(header) + sum(map(len, contents.values())) + _SPARE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    replace_file(checkpoint.path, [len(header).to_bytes(8, "little"), header, *contents.values()])
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)  # The new name has to be on disk before older checkpoints are removed.
    finally:
        os.close(opened)


def read(path: Path) -> Checkpoint:
    """The checkpoint at a path, without its arrays."""
    with _damage_of(path), open(path, "rb") as file:
        header = file.read(min(int.from_bytes(file.read(8), "little"), _MOST_HEADER_BYTES))
        checksum, rest = header[len(_START) :][:_DIGITS], header[len(_START) + _DIGITS :]
        if not header.startswith(_START) or _sha256(rest).encode() != checksum:
            raise DamagedCheckpointError(path, "its header was changed after it was written")
        about = from_json(json.loads(header)["__metadata__"]["lapwing"])
        if about["schema"] != SCHEMA:
            raise CheckpointError(
                f"the checkpoint {path} has schema {about['schema']}, but this version of Lapwing reads schema "
                f"{SCHEMA}; use the version that wrote it"
            )
        leaves = {name: Leaf(*leaf) for name, leaf in about["arrays"].items()}
        return Checkpoint(about["step"], path, about["record"], leaves)


def read_arrays(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """The arrays by path, each compared with its checksum."""
    path, arrays = checkpoint.path, {}
    with _damage_of(path), open(path, "rb") as file:
        file.seek(8 + int.from_bytes(file.read(8), "little"))
        for name, (dtype, shape, checksum) in checkpoint.leaves.items():
            content = file.read(math.prod(shape) * jnp.dtype(dtype).itemsize)
            if _sha256(content) != checksum:
                raise DamagedCheckpointError(path, f"{name} was changed after it was written")
            arrays[name] = np.frombuffer(content, jnp.dtype(dtype)).reshape(shape)
        if file.read(1):
            raise DamagedCheckpointError(path, "it is longer than it was written")
    return arrays


def _header(about: Any, leaves: Mapping[str, Leaf], contents: Mapping[str, memoryview]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"sha256": "", "lapwing": to_json(about)}}
    end = 0
    for name, leaf in leaves.items():
        begin, end = end, end + len(contents[name])
        # The bytes of a dtype that safetensors lacks.
        dtype, shape = (_DTYPES[leaf.dtype], leaf.shape) if leaf.dtype in _DTYPES else ("U8", [end - begin])
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    rest = text[len(_START) :] + b" " * (-len(text) % 8)
    return _START + _sha256(rest).encode() + rest


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
