"""Running statistics that are those of the last batch: an average that keeps less than half of what it has."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from lapwing.core import format_list

from ._modes import is_named, statistics_in
from ._partition import by_path, is_float
from ._report import fail

_KEPT = 0.5
_SHIFT = 0.5


def check_running(step: Callable[[Any, Any], Any], state: PyTree, batches: Sequence[PyTree]) -> str:
    """`step(state, batch)` is the next state. After some batches, all statistics are shifted by one number before the
    last of them: what is left of that afterwards is how much an average keeps.

    Counts that grow keep more with each batch, and what is not a moving average does not answer in this way.
    """
    leaves = by_path(state, "state")
    # Without names, what has one axis: a state of (examples, features) is that of a recurrence.
    paths = [path for path in statistics_in(state) if is_named(path) or np.ndim(leaves[path]) == 1]
    if not paths or len(batches) < 2:
        return ""

    def shifted(state: Any, by: float) -> Any:
        return jax.tree.map(lambda leaf: leaf + by if is_float(leaf) else leaf, state)

    run = jax.jit(step)
    for batch in batches[:-1]:
        state = run(state, batch)
    last, other = batches[-1], batches[0]
    plain, once, twice = (by_path(run(shifted(state, by), last), "state") for by in (0.0, _SHIFT, 2 * _SHIFT))
    elsewhere = by_path(run(state, other), "state")
    found: dict[str, float] = {}
    for path in paths:
        here, up, further, there = (
            np.asarray(tree[path], np.float64) for tree in (plain, once, twice, elsewhere)
        )
        kept = (up - here) / _SHIFT
        is_average = np.allclose(further - up, up - here, atol=1e-4) and np.ptp(kept) < 1e-3
        if is_average and not np.allclose(here, there, rtol=1e-6) and 1e-3 < kept.mean() < _KEPT:
            found[path] = float(kept.mean())
    if found:
        kept = max(found.values())
        fail(
            "modes",
            f"the running statistics {format_list(list(found), 4)} keep {kept:.0%} of what they were in each batch, so "
            f"that the last batch counts {1 - kept:.0%}: the evaluation depends on which batch was the last",
            "the momentum of the average: in Flax and Equinox it is the weight of the old statistics (0.9 or 0.99), in "
            "PyTorch that of the new ones (0.1)",
            list(found),
        )
    return f"{len(paths)} running statistics are averages of many batches"
