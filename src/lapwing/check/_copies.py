"""Copies of the parameters, one for each device, as rows of every leaf: they start equal and must stay so.

`jax.pmap`, and `jax.vmap` with the name of an axis, hold parameters in this way. Rows that are all equal at the start,
in every leaf, and not all one number, are taken as copies.
"""

from typing import Any

import jax
import numpy as np

from ._devices import devices
from ._partition import is_float
from ._report import CheckError, CheckInputError, Report

_STEPS = 3


def are_copies(params: Any) -> bool:
    """Whether the rows of all leaves are equal, and random numbers are among them.

    >>> row = np.array([0.3, -0.1, 0.2])
    >>> are_copies({"w": np.stack([row, row])}), are_copies({"w": np.stack([row, -row])}), are_copies(np.zeros((2, 2)))
    (True, False, False)
    """
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(params) if is_float(leaf)]
    counts = {len(leaf) if leaf.ndim else 0 for leaf in leaves}
    if len(counts) != 1 or min(counts) < 2:
        return False
    same = all((leaf == leaf[:1]).all() for leaf in leaves)
    return same and any(np.unique(leaf[0]).size > 2 for leaf in leaves)


def check_copies(training: Any) -> Report:
    """Some steps of training must leave the copies equal."""
    if not are_copies(training.params):
        raise CheckInputError(
            "nothing is replicated: neither over devices, nor in the rows of all parameters"
        )
    state = training.state
    for _ in range(_STEPS):
        state, _ = training.step(state)
    try:
        return devices(jax.device_get(state.params), axis=0)
    except CheckError as error:
        message = (
            f"the parameters start as equal copies, and {_STEPS} steps of training drive them apart: {error}"
        )
        raise CheckError("devices", message, error.where) from None
