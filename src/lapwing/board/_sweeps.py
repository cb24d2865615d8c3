"""A sweep as its page shows it, read from its folder: its definition and the summary of its points."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lapwing.core import UnreadableError, read_regular
from lapwing.journal import flat, from_json

from ._details import plain_files
from ._shelf import UnknownError

LARGEST_FILE = 8 << 20
_APART = ("config", "format", "created")


def sweep_details(name: str, folders: Mapping[str, Path]) -> dict[str, Any]:
    """The content of a sweep's folder; None for what is missing or damaged.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "sweep.json").write_text('{"experiment": "adding", "seeds": 2}')
    >>> sweep_details("mine", {"mine": folder})["asked"]
    [('experiment', 'adding'), ('seeds', 2)]
    """
    if name not in folders:
        raise UnknownError(f"there is no sweep {name!r}; the page of all runs lists them")
    files = plain_files(folders[name])
    definition, summary = (_read(files.get(file)) for file in ("sweep.json", "summary.json"))
    spec = definition if isinstance(definition, dict) else {}
    return {
        "sweep": name,
        "asked": list(flat({key: value for key, value in spec.items() if key not in _APART})),
        "config": list(flat(spec["config"])) if isinstance(spec.get("config"), dict) else [],
        "summary": summary,
    }


def _read(path: Path | None) -> Any:
    try:
        return None if path is None else from_json(read_regular(path, LARGEST_FILE, path.parent))
    except (OSError, UnreadableError):
        return None
