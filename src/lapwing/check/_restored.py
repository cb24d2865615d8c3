"""What a restored state changes: a run that is saved and restored in the middle, beside one that is not."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import PyTree

from lapwing.core import format_list

from ._influence import changes
from ._partition import by_path
from ._report import CheckInputError, Report, fail


def resume(
    step: Callable[[PyTree, PyTree], Any],
    state: PyTree,
    batches: Sequence[PyTree],
    restore: Callable[[PyTree], PyTree],
) -> Report:
    """A run that is saved and restored in the middle must be the run that was not interrupted, bit by bit.

    **Arguments**

    - `step(state, batch)` returns the next state, or a tuple that begins with it.
    - `batches`: those of some steps; the state is restored after half of them.
    - `restore(state)`: saves the state and returns what a new process would load.

    >>> import jax.numpy as jnp
    >>> def step(state, x):
    ...     speed = 0.9 * state["speed"] + x
    ...     return {"w": state["w"] - 0.1 * speed, "speed": speed}
    >>> start = {"w": jnp.ones(2), "speed": jnp.zeros(2)}
    >>> print(resume(step, start, [jnp.ones(2)] * 4, lambda state: state))
    optimizer: after 4 steps, a run restored in the middle has the state of one that was not interrupted (2 leaves)
    >>> resume(step, start, [jnp.ones(2)] * 4, lambda state: state | {"speed": jnp.zeros(2)})
    Traceback (most recent call last):
    lapwing.check._report.CheckError: a run that is restored differs from one that is not: state['speed'] was not ...
    """
    if len(batches) < 2:
        raise CheckInputError(f"expected two batches or more, found {len(batches)}")
    first = lambda result: result[0] if type(result) is tuple else result  # noqa: E731
    half = len(batches) // 2
    for batch in batches[:half]:
        state = first(step(state, batch))
    before, restored = by_path(state, "state"), restore(state)
    loaded = by_path(restored, "state")
    lost = [path for path in before if path not in loaded or changes([before[path]], [loaded[path]])[0].any()]
    plain, other = state, restored
    for batch in batches[half:]:
        plain, other = first(step(plain, batch)), first(step(other, batch))
    ours, theirs = by_path(plain, "state"), by_path(other, "state")
    apart = [path for path in ours if path not in theirs or not np.array_equal(ours[path], theirs[path])]
    if apart:
        where = (
            f"{format_list(lost, 4)} was not restored"
            if lost
            else f"{format_list(apart, 4)} comes out differently"
        )
        fail(
            "optimizer",
            f"a run that is restored differs from one that is not: {where}",
            "what is saved: parameters, the state of the optimizer, its counts, random keys, statistics, and the place "
            "in the data",
            lost or apart,
        )
    message = f"after {len(batches)} steps, a run restored in the middle has the state of one that was not interrupted"
    return Report("optimizer", f"{message} ({len(ours)} leaves)", {"leaves": len(ours)})
