"""An optimizer over a long time: it forgets gradients, and its schedule lasts as long as the training.

A gradient has an effect on the updates that follow it, which must fade: momentum is multiplied by less than 1 in each
step. What is added up and never reset moves the parameters for ever.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ._partition import is_float
from ._report import fail

_SCHEDULE_STATE = "ScaleByScheduleState"

_LATER = 1000
_LEFT = 0.2  # Momentum of 0.998 has less left.
_SAMPLES = 200
_IDLE = 0.1
_BEYOND, _BEGUN = 10_000, 0.1


class Course(NamedTuple):
    """What was seen of an optimizer over many steps: how many gradients it accumulates for an update, 1 if that cannot
    be said, and what each of its schedules has counted after each step."""

    period: int
    counts: Sequence[np.ndarray] = ()

    def updates(self, steps: int, schedule: int) -> int:
        """What a schedule of the optimizer has counted after these steps; beyond those that were seen, it goes on as in
        the second half of them."""
        if not self.counts:
            return steps
        seen = self.counts[min(schedule, len(self.counts) - 1)]
        if steps <= len(seen):
            return int(seen[steps - 1])
        half = len(seen) // 2
        pace = (seen[-1] - seen[half]) / (len(seen) - 1 - half)
        return int(seen[-1] + pace * (steps - len(seen)))


def check_forgets(made: Any, params: Any) -> Course:
    """One gradient, and then none: the updates must come to an end."""
    zeros = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if is_float(leaf) else leaf, params)
    slopes = jax.tree.map(lambda leaf: jnp.ones_like(leaf) if is_float(leaf) else leaf, params)

    def run(zeros: Any, slopes: Any) -> Any:
        first, state = made.update(slopes, made.init(zeros), zeros)

        def later(carry: Any, _: None) -> Any:
            update, carry = made.update(zeros, carry, zeros)
            return carry, (_size(update), schedule_counts(carry))

        sizes, counts = jax.lax.scan(later, state, length=_LATER)[1]
        return _size(first), sizes, schedule_counts(state), counts

    try:
        first, sizes, count, counts = jax.jit(run)(zeros, slopes)
    except Exception:
        return Course(1)  # It needs more than gradients and parameters, or its state changes its structure.
    # An optimizer that accumulates makes its first update later.
    largest = max(float(first), float(np.max(sizes[: _LATER // 10])))
    left = float(np.mean(sizes[-_LATER // 10 :]))
    if largest > 0 and left > _LEFT * largest:
        fail(
            "optimizer",
            f"{_LATER} steps after the last gradient the updates are still {left / largest:.0%} of the largest: the "
            "optimizer accumulates gradients, and never forgets one",
            "what its state adds up: it should be reset after an update (zero_grad), or multiplied by less than 1, as "
            "in optax.trace(decay=0.9)",
        )
    each = [np.append(one, more) for one, more in zip(count, counts, strict=True)]
    return Course(_period(np.append(first, sizes)), each)


def schedule_counts(state: Any) -> list[Any]:
    """What the schedules in the state of an optimizer have counted."""
    is_schedule = lambda node: type(node).__name__ == _SCHEDULE_STATE  # noqa: E731
    return [node.count for node in jax.tree.leaves(state, is_leaf=is_schedule) if is_schedule(node)]


def _period(sizes: np.ndarray) -> int:
    """The distance of the updates that are not zero, if all others are.

    >>> _period(np.array([0, 0, 3, 0, 0, 2.0, 0])), _period(np.array([0, 1, 1, 1.0])), _period(np.array([2, 1.0]))
    (3, 1, 1)
    """
    made = np.flatnonzero(sizes > 0)
    period = int(made[0]) + 1 if made.size else 1
    return period if (made % period == period - 1).all() else 1


def _size(tree: Any) -> jax.Array:
    leaves = [jnp.sum(jnp.abs(leaf.astype(jnp.float32))) for leaf in jax.tree.leaves(tree) if is_float(leaf)]
    return jnp.sum(jnp.stack(leaves)) if leaves else jnp.zeros(())


def check_lasts(schedule: Callable[[Any], Any], steps: int, updates: int | None = None) -> None:
    """A schedule must not be zero for a part of the training. `updates` is what it counts in these steps, where that is
    less: an optimizer that accumulates gradients advances its schedules with its own updates."""
    count = steps if updates is None else updates
    if count == 0:
        return
    places = np.unique(np.linspace(0, max(count - 1, 0), _SAMPLES).astype(int))
    values = _values(schedule, places)
    _check_begins(schedule, steps, count, float(values.max(initial=0.0)))
    idle = values <= 1e-6 * values.max(initial=0.0)
    if values.max(initial=0.0) == 0:
        fail(
            "optimizer",
            f"the schedule is 0 in all {steps} steps",
            "the schedule, which multiplies every update",
        )
    last = int(np.flatnonzero(~idle)[-1]) + 1
    if idle.mean() >= _IDLE and last < len(places) * (1 - _IDLE):
        where = f"step {places[last]} on, and the training has {steps}"
        if count != steps:
            where = f"update {places[last]} on, and the training has {count} (in {steps} steps)"
        fail(
            "optimizer",
            f"the schedule is 0 from {where}: nothing is learned after it",
            "the schedule and what it counts: it is advanced more than once in a step (by every process, by every "
            "micro-batch), or it was made for fewer steps",
        )


def _check_begins(schedule: Callable[[Any], Any], steps: int, count: int, largest: float) -> None:
    """A warm-up must be over before the training is."""
    later = np.unique(np.geomspace(count, _BEYOND * count, _SAMPLES).astype(int))
    values = _values(schedule, later)
    most, goes_on = float(values.max()), int(np.argmax(values)) == len(values) - 1
    if not goes_on and np.isfinite(most) and largest < _BEGUN * most:
        fail(
            "optimizer",
            f"the schedule is at most {largest:.3g} in all {steps} steps, {largest / most:.2%} of what it reaches "
            f"later ({most:.3g}): the training ends while its warm-up has hardly begun",
            "the length of the warm-up, and what it counts: updates, not examples, tokens or epochs",
        )


def _values(schedule: Callable[[Any], Any], places: np.ndarray) -> np.ndarray:
    try:
        return np.abs(np.asarray(jax.vmap(schedule)(jnp.asarray(places)), np.float64))
    except Exception:  # It takes one step only.
        return np.abs([float(schedule(jnp.asarray(place))) for place in places])
