"""Reads the checkpoints of Lapwing 0.1: a folder with Orbax's arrays and a `checkpoint.json`.

Orbax is not a dependency any more: it is imported when the arrays of such a checkpoint are asked for.
"""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jax.numpy as jnp
import numpy as np

from lapwing.journal import (
    NOT_OURS,
    Checkpoint,
    CheckpointError,
    DamagedCheckpointError,
    Leaf,
    from_json,
    to_json,
)

from ._checkpoint_arrays import escaped
from ._version_0_1 import new_leaves, new_record


def read(path: Path) -> Checkpoint:
    """The checkpoint in a folder, without its arrays."""
    head = _read_head(path)
    leaves = {_new_name(name): Leaf(**kind) for name, kind in head["arrays"].items()}
    return Checkpoint(head["step"], path, new_record(head["record"]), new_leaves(leaves))


def read_arrays(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """The arrays by path, once all files have been compared with their checksums."""
    folder = checkpoint.path
    for name, written in _read_head(folder)["files"].items():
        file = folder / name
        if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != written["sha256"]:
            raise DamagedCheckpointError(folder, f"its file {name} is missing or was changed")
    # Orbax does not store arrays without elements.
    arrays = {name: np.empty(leaf.shape, jnp.dtype(leaf.dtype)) for name, leaf in checkpoint.leaves.items()}
    if any(array.size for array in arrays.values()):
        with ThreadPoolExecutor(1) as thread:  # Orbax needs a thread without an event loop: not a notebook's.
            loaded = thread.submit(_load, folder).result()
            arrays |= new_leaves({_new_name(name): array for name, array in loaded.items()})
    return arrays


def _load(folder: Path) -> dict[str, np.ndarray]:
    try:
        import orbax.checkpoint as orbax

        with orbax.Checkpointer(orbax.PyTreeCheckpointHandler()) as checkpointer:
            return checkpointer.restore(folder.absolute() / "arrays", args=orbax.args.PyTreeRestore())
    except ImportError as error:
        raise CheckpointError(
            f"the checkpoint {folder} was written by Lapwing 0.1 and needs Orbax; install it with "
            "`pip install orbax-checkpoint`"
        ) from error
    except Exception as error:  # Orbax raises anything, for example for a path with a backslash.
        reason = str(error).partition("\n")[0]
        raise DamagedCheckpointError(folder, f"Orbax cannot read its arrays ({reason})") from error


def _read_head(folder: Path) -> dict[str, Any]:
    try:
        head = from_json((folder / "checkpoint.json").read_bytes())
        if head.pop("seal") == hashlib.sha256(to_json(head).encode(errors="surrogatepass")).hexdigest():
            return head
    except (OSError, *NOT_OURS) as error:
        raise DamagedCheckpointError(folder, f"its checkpoint.json cannot be read ({error})") from error
    raise DamagedCheckpointError(folder, "its checkpoint.json was changed after it was written")


def _new_name(path: str) -> str:
    return "/".join(escaped(unquote(word, errors="surrogatepass")) for word in path.split("/"))
