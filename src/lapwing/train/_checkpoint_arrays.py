"""A tree of arrays as arrays by name, and back.

A leaf is named by its path ("params/w/0"), not by its position, so that an error can name a leaf that is missing, new
or different, and a reader needs none of the classes that the tree is made of.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.journal import CheckpointError


def leaves_by_path(tree: Any) -> dict[str, Any]:
    """The leaves by path, of random keys their key data; a slash within a key is escaped.

    >>> leaves_by_path({"w": [jnp.ones(1), None, jnp.zeros(1)], "a/b": jnp.ones(2)})
    {'a%2Fb': Array([1., 1.], dtype=float32), 'w/0': Array([1.], ...), 'w/2': Array([0.], ...)}
    """
    leaves: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = "/".join(escaped(jax.tree_util.keystr((key,), simple=True)) for key in path)
        if name in leaves or name == "__metadata__":  # Safetensors has its own use for this name.
            raise CheckpointError(f"the path {name} of a leaf is already in use; give the leaf another name")
        if not hasattr(leaf, "shape") or getattr(leaf.dtype, "hasobject", False):
            raise CheckpointError(
                f"a checkpoint holds arrays, but {name} is a {type(leaf).__name__}; write jnp.asarray of it"
            )
        leaves[name] = jax.random.key_data(leaf) if _is_key(leaf) else leaf
    return leaves


def escaped(key: str) -> str:
    return quote(key, safe="", errors="surrogatepass")


def to_host(leaves: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The numbers of the leaves; all copies from the device run at once."""
    return {name: np.asarray(array) for name, array in jax.device_get(dict(leaves)).items()}


def to_device(arrays: Mapping[str, np.ndarray], like: Any) -> Any:
    """The inverse: a tree like `like`, each leaf with the sharding of its leaf.

    Only what is committed to a device in `like` is committed here, since jit compiles the two separately. The leaves
    never share memory with `arrays`, since the loop donates them.
    """

    def put(name: str, leaf: Any) -> jax.Array:
        sharding = getattr(leaf, "sharding", None) if getattr(leaf, "committed", True) else None
        if _is_key(leaf):
            keys = jax.random.wrap_key_data(jnp.asarray(arrays[name]), impl=jax.random.key_impl(leaf))
            return jax.device_put(keys, sharding)
        return jax.device_put(arrays[name], sharding, may_alias=False)

    leaves, structure = jax.tree.flatten(like)
    return jax.tree.unflatten(structure, map(put, leaves_by_path(like), leaves))


def tree_like(arrays: Mapping[str, np.ndarray], like: Any) -> Any:
    """A tree like `like` of arrays by path, such as `Run.params(like=...)` has read.

    >>> tree_like({"w": np.ones(2, np.float32)}, {"w": jax.ShapeDtypeStruct((2,), jnp.float32)})
    {'w': Array([1., 1.], dtype=float32)}
    """
    if found := differences(arrays, like):
        raise CheckpointError(f"the checkpoint has other parameters than `like`: {'; '.join(found)}")
    return to_device(arrays, like)


def differences(stored: Mapping[str, Any], like: Any) -> list[str]:
    """How the leaves in a checkpoint differ from those of `like` in dtype and shape; [] if they do not."""
    found, wanted = (
        {name: _kind(leaf) for name, leaf in each.items()} for each in (stored, leaves_by_path(like))
    )
    return [
        f"{name} is {found.get(name, 'missing')} in the checkpoint and {wanted.get(name, 'missing')} in the state"
        for name in {**wanted, **found}
        if found.get(name) != wanted.get(name)
    ]


def _kind(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
