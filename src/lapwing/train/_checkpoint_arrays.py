"""A tree of arrays as arrays with names, and arrays with names on disk, by Orbax.

A leaf is stored by its path ("params/w/0") and not by its place in the tree, so that one that was renamed, is
missing or is new can be named, and so that whoever reads the arrays later needs none of the classes that the
tree was made of.

Orbax is given plain numpy arrays: the tree's structure is the caller's, and device memory is none of its
concern. Its import takes a fifth of a second or more, so it waits until something is stored or loaded. It
refuses arrays of no elements; those are told in full by their dtype and shape, and never reach it.
"""

import functools
import logging
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.core import LapwingError


class CheckpointError(LapwingError, ValueError):
    """What is wrong with a checkpoint, in one sentence that a person can act on."""


class Kind(NamedTuple):
    """What is known of an array without its numbers."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def leaves_by_path(tree: Any) -> dict[str, Any]:
    """The leaves by the names of their paths, of which no two are equal.

    >>> leaves_by_path({"w": [jnp.ones(1), None, jnp.zeros(1)], "a/b": jnp.ones(2)})
    {'a%2Fb': Array([1., 1.], dtype=float32), 'w/0': Array([1.], ...), 'w/2': Array([0.], ...)}
    """
    named: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = "/".join(_word(jax.tree_util.keystr((key,), simple=True)) for key in path) or _NO_WORD
        if name in named:
            raise CheckpointError(f"two leaves of the state have the path {name}; give them different names")
        _check_leaf(name, leaf)
        named[name] = leaf
    return named


def kind_of(leaf: Any) -> Kind:
    return Kind(str(leaf.dtype), tuple(leaf.shape))


def on_host(leaves: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The numbers, after whatever the device still computes for them; all copies are under way at once."""
    return {name: np.asarray(leaf) for name, leaf in jax.device_get(dict(leaves)).items()}


def on_device(arrays: Mapping[str, np.ndarray], like: Any) -> Any:
    """The tree like `like`, leaf by leaf where its leaf is. What is committed to a device there is here too, and
    nothing else, since jit compiles the two apart. Never in the memory of `arrays`, since the loop donates it.
    """

    def place(name: str, leaf: Any) -> jax.Array:
        where = getattr(leaf, "sharding", None) if getattr(leaf, "committed", True) else None
        return jax.device_put(arrays[name], where, may_alias=False)

    leaves = [place(name, leaf) for name, leaf in leaves_by_path(like).items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def differences(stored: Mapping[str, Kind], like: Any) -> list[str]:
    """What keeps the stored arrays from becoming a tree like `like`, leaf by leaf; [] where nothing does."""
    wanted = {name: kind_of(leaf) for name, leaf in leaves_by_path(like).items()}
    missing = [f"{name} is missing there" for name in wanted if name not in stored]
    unknown = [f"{name} is only there" for name in stored if name not in wanted]
    other = [
        f"{name} is {stored[name]} there and {kind} here"
        for name, kind in wanted.items()
        if name in stored and stored[name] != kind
    ]
    return missing + unknown + other


def store(arrays: Mapping[str, np.ndarray], folder: Path) -> None:
    """Writes the arrays into a new folder. To be called in a thread of its own (see `load`)."""
    if some := {name: array for name, array in arrays.items() if array.size}:
        with _checkpointer() as checkpointer:
            checkpointer.save(folder.absolute(), args=_orbax().args.PyTreeSave(some))


def load(folder: Path, kinds: Mapping[str, Kind]) -> dict[str, np.ndarray]:
    """What `store` wrote, given what it was given."""
    arrays = {name: np.empty(kind.shape, jnp.dtype(kind.dtype)) for name, kind in kinds.items()}
    if any(array.size for array in arrays.values()):
        # In a thread of its own: Orbax starts an event loop, and a notebook's thread has one already.
        with ThreadPoolExecutor(1) as thread:
            arrays |= thread.submit(_load_some, folder).result()
    return arrays


def _load_some(folder: Path) -> dict[str, np.ndarray]:
    with _checkpointer() as checkpointer:
        return checkpointer.restore(folder.absolute(), args=_orbax().args.PyTreeRestore())


def _checkpointer() -> Any:
    """Orbax would wait for the other processes of a training, which have no part in it."""
    orbax, me = _orbax(), jax.process_index()
    alone = orbax.options.MultiprocessingOptions(
        primary_host=me, active_processes={me}, barrier_sync_key_prefix="lapwing"
    )
    handler = orbax.PyTreeCheckpointHandler(multiprocessing_options=alone)
    return orbax.Checkpointer(handler, multiprocessing_options=alone)


@functools.cache
def _orbax() -> Any:
    """Orbax, made silent: it logs every failure with several tracebacks, and the caller tells it in a sentence."""
    import orbax.checkpoint

    logging.getLogger("absl").addFilter(_is_not_of_orbax)
    return orbax.checkpoint


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    return "orbax" not in Path(record.pathname).parts


_NO_WORD = "%"  # Stands for nothing: an empty key, or the path of a tree that is one leaf.


def _word(key: str) -> str:
    """A key as a word without slashes and dots, another one for another key."""
    return re.sub(r"[^\w-]", lambda found: _percent(found[0]), key) or _NO_WORD


def _percent(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode(errors="surrogatepass"))


def _check_leaf(name: str, leaf: Any) -> None:
    if not hasattr(leaf, "dtype") or not hasattr(leaf, "shape"):
        raise CheckpointError(
            f"a checkpoint holds arrays, but {name} is a {type(leaf).__name__}; write jnp.asarray of it"
        )
    if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        raise CheckpointError(
            f"a checkpoint holds plain numbers, but {name} is an array of {leaf.dtype}; "
            "write jax.random.key_data of it"
        )
