"""What a store has of a run: the manifest, written last, so that what it names is complete.

    RUN/checkpoints/000012-step-340.safetensors.0-9f86d081884c7d65
    RUN/metrics.jsonl.0-60303ae22b998861, RUN/metrics.jsonl.4096-fd61a03af4f77d87, ...
    RUN/.manifest/000007-2c26b46b68ffc68f.json

A file is a list of parts, each an object named by its file, its first byte and the start of its SHA-256. A file that
only grows gets further parts. A manifest has the parts of all files with their whole checksums; the one with the
highest number counts. Objects are never changed, so an upload that is killed at any moment leaves the last manifest and
everything it names as they were.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ._remote import DamagedError, StoreError

FORMAT = 1
FOLDER = ".manifest"
SWEEP = ".sweep"
"""The name, in the folder of a sweep, under which what belongs to the sweep and to none of its runs is stored."""
_NAME = re.compile(r"(\d{6,})-([0-9a-f]{16})\.json")
_SHA256 = re.compile(r"[0-9a-f]{64}")
NEVER_STORED = ("lock", "control")


@dataclass(frozen=True)
class Part:
    """A stretch of a file, which is one object."""

    size: int
    sha256: str

    def object_name(self, file: str, offset: int) -> str:
        return f"{file}.{offset}-{self.sha256[:16]}"


@dataclass(frozen=True)
class Manifest:
    """The files of a run by name, each a list of parts. `writer` is the process that is still uploading, if any."""

    time: float
    writer: Mapping[str, Any] | None = None
    files: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)

    def objects(self) -> set[str]:
        """The names of all objects, relative to the run."""
        return {name for file in self.files for name, _ in self.parts(file)}

    def parts(self, file: str) -> Iterator[tuple[str, Part]]:
        """The objects of a file in their order."""
        offset = 0
        for part in self.files[file]:
            yield part.object_name(file, offset), part
            offset += part.size

    def size(self, file: str) -> int:
        return sum(part.size for part in self.files[file])

    def encode(self) -> bytes:
        files = {
            name: [[part.size, part.sha256] for part in parts] for name, parts in sorted(self.files.items())
        }
        about = {"format": FORMAT, "time": self.time, "writer": self.writer, "files": files}
        return json.dumps(about, indent=0).encode()


def manifest_name(revision: int, content: bytes) -> str:
    """The name of a manifest, relative to the run.

    >>> manifest_name(7, b"{}")
    '.manifest/000007-44136fa355b3678a.json'
    """
    return f"{FOLDER}/{revision:06d}-{sha256_of([content])[:16]}.json"


def revision_of(name: str) -> int | None:
    """The number of a manifest; None for another name."""
    folder, _, file = name.rpartition("/")
    match = _NAME.fullmatch(file)
    return int(match[1]) if match and folder.rpartition("/")[2] == FOLDER else None


def decode(content: bytes, name: str, where: str) -> Manifest:
    """Reads a manifest, which anybody who may write to the store may have written."""
    match = _NAME.fullmatch(name.rpartition("/")[2])
    if match is None or sha256_of([content])[:16] != match[2]:
        raise DamagedError(
            f"{where}/{name} is damaged: its content is not what its name says; push the run again"
        )
    try:
        about = json.loads(content)
        if about["format"] != FORMAT:
            raise StoreError(f"{where}/{name} was written by a newer Lapwing; update this one")
        files = {
            file: tuple(Part(size, text) for size, text in parts) for file, parts in about["files"].items()
        }
        writer = about["writer"]
        if not isinstance(about["time"], int | float) or not isinstance(writer, dict | None):
            raise TypeError
        for file, parts in files.items():
            if not is_safe(file) or not all(_is_sound(part) for part in parts):
                raise ValueError
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedError(f"{where}/{name} is not a manifest of Lapwing; push the run again") from error
    return Manifest(float(about["time"]), writer, files)


def is_safe(file: str) -> bool:
    """Whether a file of this name may be written into a run folder.

    >>> [is_safe(name) for name in ("metrics.jsonl", "media/a.png", "../x", "/etc/passwd", ".best.json", "lock")]
    [True, True, False, False, False, False]
    """
    return _is_plain(file) and file.partition("/")[0] not in NEVER_STORED


def is_safe_name(name: str) -> bool:
    """Whether a run in a store may have this name on a disk; the last part may be that of a sweep's own files.

    >>> [is_safe_name(name) for name in ("a", "sweep/a", "sweep/.sweep", "../a", "", ".hidden")]
    [True, True, True, False, False, False]
    """
    return _is_plain(name.removesuffix(f"/{SWEEP}"))


def _is_plain(path: str) -> bool:
    parts = path.split("/")
    return "\0" not in path and all(part and not part.startswith(".") for part in parts)


def sha256_of(blocks: Iterable[bytes]) -> str:
    checksum = hashlib.sha256()
    for block in blocks:
        checksum.update(block)
    return checksum.hexdigest()


def _is_sound(part: Part) -> bool:
    return type(part.size) is int and part.size > 0 and bool(_SHA256.fullmatch(part.sha256))
