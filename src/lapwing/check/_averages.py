"""Averages of the parameters in the state of a model: a target network, a momentum encoder.

Such a tree begins as a copy of parameters, and each step moves it a little towards them. With the two factors swapped
it is the parameters themselves, one step late; never returned, it stays the network that nothing has trained.
"""

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from lapwing.core import format_list

from ._partition import by_path, is_float
from ._program import Program, read
from ._report import fail

_SHIFT = 0.5
_KEPT = 0.5
# What stays as it is on purpose (a teacher, a reference, an anchor) is called otherwise.
_FOLLOWS = re.compile(r"ema|average|target|momentum|polyak|slow", re.IGNORECASE)


def check_averages(step: Callable[[PyTree, PyTree], PyTree], params: PyTree, state: PyTree) -> None:
    """`step(params, state)` is the next state. Averages are leaves with the values of a parameter at the beginning, or
    that are called so."""
    ours = [np.asarray(leaf) for leaf in jax.tree.leaves(params) if is_float(leaf)]
    found = {
        path: leaf
        for path, leaf in by_path(state, "state").items()
        if is_float(leaf) and np.ptp(np.asarray(leaf, np.float64)) > 0 and _is_copy(np.asarray(leaf), ours)
    }
    if not found:
        return

    def shifted(tree: Any, by: float) -> Any:
        return jax.tree.map(lambda leaf: leaf + by if is_float(leaf) else leaf, tree)

    run = jax.jit(step)
    plain, other = (by_path(run(shifted(params, by), state), "state") for by in (0.0, _SHIFT))
    moved = {
        path: float(np.mean(np.asarray(other[path], np.float64) - np.asarray(plain[path], np.float64)))
        / _SHIFT
        for path in found
    }
    fast = [path for path, share in moved.items() if _KEPT < share < 1 - 1e-3]
    if fast:
        share = moved[fast[0]]
        fail(
            "targets",
            f"the average {format_list(fast, 4)} keeps {1 - share:.1%} of what it was in each step, and takes "
            f"{share:.1%} of the parameters: it is the parameters themselves",
            "the two factors, which are swapped: decay * average + (1 - decay) * parameters, with a decay near 1",
            fast,
        )
    _check_follow(read(step, params=params, state=state), [path for path in found if _FOLLOWS.search(path)])


def _check_follow(program: Program, averages: list[str]) -> None:
    """The program of a step must not hand on all averages as they are; a copy now and then is no such thing."""
    before = program.inputs["state"]
    after = dict(zip(before, program.closed.jaxpr.outvars, strict=True))
    still = [path for path in averages if program.source(after[path]) is before[path]]
    if averages and len(still) == len(averages):
        fail(
            "targets",
            f"the average {format_list(still, 4)} never moves: it is a copy of the parameters at the beginning, and a "
            "step hands it on as it is",
            "the state that the loss returns, which should be the next one: decay * average + (1 - decay) * parameters",
            still,
        )


def _is_copy(leaf: np.ndarray, others: list[np.ndarray]) -> bool:
    return any(leaf.shape == other.shape and np.array_equal(leaf, other) for other in others)
