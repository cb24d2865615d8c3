"""Copies that should be equal on every device: parameters that drift apart, statistics of a part of the batch."""

from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from lapwing.core import format_list

from ._partition import by_path, is_array
from ._report import CheckInputError, Report, fail


def devices(tree: PyTree, *, axis: int | None = None) -> Report:
    """What is replicated over devices must be the same on all of them: parameters, optimizer state, statistics.

    **Arguments**

    - `tree`: arrays that are replicated; an array that is split over the devices is left out.
    - `axis`: the axis of the devices in every array, as `jax.pmap` and `jax.vmap` with an axis name return it.

    >>> import jax.numpy as jnp
    >>> print(devices({"w": jnp.ones((2, 3))}, axis=0))
    devices: 1 leaves are the same on 2 devices
    >>> devices({"w": jnp.ones((2, 3)), "mean": jnp.array([[0.1], [0.3]])}, axis=0)
    Traceback (most recent call last):
    lapwing.check._report.CheckError: ['mean'] differs between devices 0 and 1, by 0.2 at most. Look at ...
    """
    copies = {path: _copies(leaf, axis) for path, leaf in by_path(tree).items() if is_array(leaf)}
    copies = {path: each for path, each in copies.items() if len(each) > 1}
    if not copies:
        raise CheckInputError("nothing is replicated over two devices or more; name the axis of the devices")
    apart = {}
    for path, each in copies.items():
        for number, copy in enumerate(each[1:], start=1):
            if not np.array_equal(each[0], copy, equal_nan=copy.dtype.kind == "f"):
                apart.setdefault(path, (number, float(np.max(np.abs(_wide(each[0]) - _wide(copy))))))
    if apart:
        path, (number, off) = next(iter(apart.items()))
        more = f" (also: {format_list(list(apart)[1:], 4)})" if len(apart) > 1 else ""
        fail(
            "devices",
            f"{path or 'the array'} differs between devices 0 and {number}, by {off:.3g} at most{more}",
            "what is averaged: jax.lax.pmean of gradients before the update, and of batch statistics; and the start: "
            "the same key for the parameters of every device",
            list(apart),
        )
    count = max(map(len, copies.values()))
    return Report("devices", f"{len(copies)} leaves are the same on {count} devices", {"leaves": len(copies)})


def _copies(leaf: Any, axis: int | None) -> list[np.ndarray]:
    if axis is not None:
        return list(np.moveaxis(np.asarray(leaf), axis, 0)) if np.ndim(leaf) > axis else []
    if not isinstance(leaf, jax.Array) or not leaf.is_fully_replicated:
        return []
    return [np.asarray(shard.data) for shard in leaf.addressable_shards]


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)
