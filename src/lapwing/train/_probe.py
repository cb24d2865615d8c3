"""A look into one step while a run is trained: which leaves move, which updates are lost in rounding, which units and
which attention are alive.

The step is computed beside the training, from the state and the batch of the next call, and thrown away, so that the
numbers of the run stay what they are. It is compiled and run only when that fits into half a percent of the time so
far, compiling included.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.jaxprs import readable
from lapwing.task import Task

from ._config import FitConfig
from ._feed import Fed
from ._gradient import loss_alone
from ._mask import Mask, split
from ._optimizer import effective
from ._state import State
from ._step import SKIPPED, Phases
from ._units import Attention, Layer, look_at_units

_SHARE = 0.005
_LEAST_STEPS = 100  # Between two probes that are made by time.


class Leaves(NamedTuple):
    """The trained leaves in one step: a checksum of their bits; the share of entries with a gradient that the update
    left as they were; the largest and the root mean square entry of the gradient."""

    checksum: Any
    lost: Any
    largest: Any
    size: Any


class Look(NamedTuple):
    """What a probe saw at a step. `leaves` has one number for each of `paths`."""

    step: int
    paths: list[str]
    dtypes: list[str]
    leaves: Leaves
    rate: float
    skipped: bool
    layers: list[Layer]
    alive: list[np.ndarray]
    attentions: list[Attention]
    weights: list[np.ndarray]


class Probe:
    """Looks into steps of one task. It is compiled at the first call, and again for other shapes of data."""

    def __init__(self, task: Task, mask: Mask, config: FitConfig, phases: Phases):
        self._task, self._mask, self._config, self._phases = task, mask, config, phases
        self._run = jax.jit(self._looked)
        self._seen: Any = None
        self._paths: list[str] = []
        self._dtypes: list[str] = []

    def __call__(self, step: int, state: State, fed: Fed) -> Look:
        """What happens in the step of this state, which is fed `fed` (its first step, if it is for several)."""
        first = fed._replace(each=jax.tree.map(lambda leaf: leaf[0], fed.each))
        leaves, rate, skipped, alive, weights = jax.device_get(self._run(state, first))
        seen = self._seen
        return Look(
            step,
            self._paths,
            self._dtypes,
            leaves,
            float(rate),
            bool(skipped),
            seen.layers,
            alive,
            seen.attentions,
            weights,
        )

    def _looked(self, state: State, fed: Fed) -> Any:
        phases, mask = self._phases, self._mask
        batch = phases.data(state, fed)
        if phases.prepare:
            batch = phases.prepare(state, batch)
        loss, aux, pullback = phases.forward(state, batch)
        gradient = phases.backward(loss, pullback)
        after, metrics = phases.update(state, loss, aux, gradient)
        before, now = split(state.params, mask)[0], split(after.params, mask)[0]
        paths, _ = jax.tree_util.tree_flatten_with_path(before)
        self._paths = [f"params{jax.tree_util.keystr(path)}" for path, _ in paths]
        self._dtypes = [str(leaf.dtype) for _, leaf in paths]
        each = [_leaf(*trio) for trio in zip(*map(jax.tree.leaves, (before, now, gradient)), strict=True)]
        closed = readable(loss_alone(self._task, self._config))(state, batch)
        seen = look_at_units(closed, jax.tree.leaves((state, batch)))
        self._seen = seen._replace(alive=[], weights=[])
        leaves = Leaves(*map(jnp.stack, zip(*each, strict=True)))
        return leaves, metrics[effective(state.rate_name)], metrics[SKIPPED], seen.alive, seen.weights


def _leaf(before: jax.Array, after: jax.Array, gradient: jax.Array) -> Leaves:
    pushed = gradient != 0
    lost = (pushed & (before == after)).sum() / jnp.maximum(pushed.sum(), 1)
    wide = jnp.abs(gradient.astype(jnp.float32))
    return Leaves(_checksum(before), lost, wide.max(initial=0.0), jnp.sqrt(jnp.mean(wide**2)))


def _checksum(leaf: jax.Array) -> jax.Array:
    """Changes when any bit does, up to one chance in 2^32. Sums of integers do not depend on their order."""
    width = min(leaf.dtype.itemsize, 4)
    bits = jax.lax.bitcast_convert_type(leaf, jnp.dtype(f"uint{8 * width}")).ravel().astype(jnp.uint32)
    weights = jnp.arange(bits.size, dtype=jnp.uint32) * jnp.uint32(2654435761) | jnp.uint32(1)
    return jnp.sum(bits * weights, dtype=jnp.uint32)


class Timing:
    """When to probe: every N steps, or as soon as the time allows it."""

    def __init__(
        self, every: int, compiling: Callable[[], float], clock: Callable[[], float] = time.perf_counter
    ):
        self._every, self._compiling, self._clock = every, compiling, clock
        self._started, self._spent = clock(), 0.0
        self._next = every or _LEAST_STEPS
        self._cost: float | None = None  # Of the last probe; None before the first.

    def start(self, step: int) -> None:
        """The run continues at this step."""
        self._next = step + (self._every or _LEAST_STEPS)

    def is_reached(self, step: int) -> bool:
        """Whether it is worth asking: a comparison, for every call of the device."""
        return step >= self._next

    def is_due(self, step: int) -> bool:
        """Whether to probe this step; if not, it is asked again some steps later."""
        self.start(step)
        if self._every:
            return True
        # The probe is a step with a look at it, so it takes about as long to compile.
        cost = 1.5 * self._compiling() if self._cost is None else self._cost
        return self._spent + cost < _SHARE * (self._clock() - self._started)

    def measure(self, probe: Callable[[], Look]) -> Look:
        """Makes a probe and counts its time."""
        started = self._clock()
        look = probe()
        took = self._clock() - started
        # The first one was compiled, so the second may be much faster.
        self._cost = took if self._cost is not None else min(took, self._compiling() / 10 or took)
        self._spent += took
        return look
