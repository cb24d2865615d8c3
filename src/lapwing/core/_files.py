"""Files that are replaced whole."""

import os
from collections.abc import Iterable
from pathlib import Path


def replace_file(path: Path, content: str | bytes | Iterable[bytes | memoryview]) -> None:
    """Writes a file so that a reader sees the old content or the new one, never half of it.

    A large content can be given in parts, which are written one after the other.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> replace_file(path, "all of it")
    >>> path.read_text(), len(list(path.parent.iterdir()))
    ('all of it', 1)
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(draft, "wb") as file:
            content = content.encode() if isinstance(content, str) else content
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Returns when the names in a folder are on the disk: those of files that were made, renamed or removed."""
    opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
